/** Errors of the inspector. */

/** The file is malformed or does not prove its claim: the message names the field. */
export class Refused extends Error {}

/** The file may be valid, but this page cannot check it: `enc verify` can. */
export class Unsupported extends Error {}

/** Returns the result of `work`; prefixes the message of a Refused with `path`. */
export function named(path, work) {
  try {
    return work();
  } catch (error) {
    throw error instanceof Refused ? new Refused(`${path}: ${error.message}`) : error;
  }
}
