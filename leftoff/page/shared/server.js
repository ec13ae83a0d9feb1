/** What the server says of itself. While it cannot be reached, it is asked again and again. */

import { useCell } from "./cell.js";
import { html, useEffect, useState } from "./html.js";
import { apiKey, askJson, problemWith } from "./http.js";
import { pause } from "./pause.js";

const RETRY_MS = 2000;

/**
 * @template T
 * @param {string} path
 * @param {unknown} [occasion] is asked again when it changes
 * @returns {{answer: T | null, problem: string}}
 */
export function useServer(path, occasion) {
  const key = useCell(apiKey);
  const [state, setState] = useState({ answer: /** @type {T | null} */ (null), problem: "" });
  useEffect(() => {
    const own = new AbortController();
    void read(path, setState, own.signal);
    return () => own.abort();
  }, [path, occasion, key]);
  return state;
}

/**
 * @param {string} path
 * @param {(state: {answer: any, problem: string}) => void} tell
 * @param {AbortSignal} signal
 */
async function read(path, tell, signal) {
  while (!signal.aborted) {
    try {
      const answer = await askJson(path, { signal });
      tell({ answer, problem: "" });
      return;
    } catch (error) {
      if (signal.aborted) return;
      tell({ answer: null, problem: problemWith(error) });
      if (!(error instanceof TypeError)) return;
    }
    await pause(RETRY_MS);
  }
}

/** @param {{text: string}} props */
export const Problem = ({ text }) => text && html`<p class="problem" role="alert">${text}</p>`;
