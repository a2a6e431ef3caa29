/** What a file can be refused for. */

/** The file is not what it must be, or does not show what it says: the message names the field. */
export class Refused extends Error {}

/** The file may well be right, but this page cannot tell: `enc verify` can. */
export class Unsupported extends Error {}

/** What `work` gives; what it refuses is told with `path` before it. */
export function named(path, work) {
  try {
    return work();
  } catch (error) {
    throw error instanceof Refused ? new Refused(`${path}: ${error.message}`) : error;
  }
}
