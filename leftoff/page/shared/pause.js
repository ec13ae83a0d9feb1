/** Waiting, where there is nothing to wait for but time. */

/** @param {number} ms */
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
