/** State outside of components: a value that any number of components follow. */

import { useLayoutEffect, useReducer } from "./html.js";

/** @template T */
export class Cell {
  /** @type {T} */
  #value;
  /** @type {Set<() => void>} */
  #followers = new Set();

  /** @param {T} value */
  constructor(value) {
    this.#value = value;
  }

  get value() {
    return this.#value;
  }

  set value(next) {
    if (Object.is(next, this.#value)) return;
    this.#value = next;
    for (const follower of [...this.#followers]) follower();
  }

  /** @param {() => void} follower called after each change; the returned function ends that */
  follow(follower) {
    this.#followers.add(follower);
    return () => {
      this.#followers.delete(follower);
    };
  }
}

/**
 * The value of a cell, in a component that is drawn again when it changes.
 * @template T
 * @param {Cell<T>} cell
 * @returns {T}
 */
export function useCell(cell) {
  const [, redraw] = useReducer((/** @type {number} */ count, /** @type {null} */ _) => count + 1, 0);
  const seen = cell.value;
  useLayoutEffect(() => {
    if (cell.value !== seen) redraw(null);
    return cell.follow(() => redraw(null));
  }, [cell]);
  return seen;
}
