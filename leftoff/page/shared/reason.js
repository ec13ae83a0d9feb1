/** What went wrong, in words: those of an error, or its type where it has none, as errors of browsers may. */

/** @param {unknown} error */
export function reasonOf(error) {
  const { name, message } = /** @type {Partial<Error>} */ (error ?? {});
  return message || name || "for no reason that is known";
}
