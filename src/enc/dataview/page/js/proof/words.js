/** Words for times and contents in the sentences about a proof. */

// eslint-disable-next-line no-control-regex
const CONTROL = /[\x00-\x1f\x7f-\x9f\u2028\u2029]/;
/** The end of the year 9999, in Unix milliseconds. */
const LAST_TIME = 253402300799999;

/** Returns a content on one line: as a JSON string if it has control characters or line ends. */
export const line = (content) => (CONTROL.test(content) ? JSON.stringify(content) : content);

/** Returns a time in ISO 8601, in UTC, to the millisecond. */
export const timeText = (time) => (time > LAST_TIME ? `${time} (Unix milliseconds)` : new Date(time).toISOString());
