/** Requests to the server that the page came from, with the key of this session if there is one. */

import { Cell } from "./cell.js";
import { reasonOf } from "./reason.js";

const KEY = "leftoff-key";

/** Kept by the browser until its tab is closed. */
export const apiKey = new Cell(sessionStorage.getItem(KEY) ?? "");
/** The server has refused a request for want of a key, or because it does not know this one. */
export const isKeyNeeded = new Cell(false);

/**
 * Takes a key if the server knows it.
 * @param {string} key
 * @returns {Promise<boolean>}
 */
export async function useKey(key) {
  const answer = await fetch("/v1/models", { headers: { Authorization: `Bearer ${key}` } });
  if (answer.status === 401) return false;
  sessionStorage.setItem(KEY, key);
  apiKey.value = key;
  isKeyNeeded.value = false;
  return true;
}

/** An answer that is no success. The message is the server's own, which names the way out. */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** @typedef {{method?: string, body?: unknown, signal?: AbortSignal}} Options */

/**
 * Asks again once the user has given the key that the server wants.
 * @param {string} path
 * @param {Options} [options]
 * @returns {Promise<Response>} a successful one
 */
export async function ask(path, options = {}) {
  for (;;) {
    const key = apiKey.value;
    const response = await sent(path, options, key);
    if (response.ok) return response;
    if (response.status !== 401) throw new ApiError(response.status, await problemOf(response));
    if (key === apiKey.value) await keyAsked(options.signal);
    if (key === apiKey.value) throw new ApiError(401, "This server wants an API key: ask whoever runs it for one.");
  }
}

/**
 * @param {string} path
 * @param {Options} options
 * @param {string} key
 */
function sent(path, { method, body, signal }, key) {
  /** @type {Record<string, string>} */
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  return fetch(path, {
    method: method ?? (body === undefined ? "GET" : "POST"),
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
  });
}

/**
 * Until the user has given a key, or would not.
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
function keyAsked(signal) {
  isKeyNeeded.value = true;
  return new Promise((resolve, reject) => {
    const forget = isKeyNeeded.follow(() => {
      forget();
      resolve();
    });
    signal?.addEventListener("abort", () => {
      forget();
      reject(signal.reason);
    });
  });
}

/**
 * @param {string} path
 * @param {Options} [options]
 * @returns {Promise<any>}
 */
export async function askJson(path, options) {
  return (await ask(path, options)).json();
}

/** @param {unknown} error of `ask` */
export const problemWith = (error) => (error instanceof TypeError ? "The server cannot be reached." : reasonOf(error));

/** @param {Response} response */
async function problemOf(response) {
  const answer = await response.json().catch(() => null); // of a proxy, perhaps
  return answer?.error?.message || `the server answered ${response.status}`;
}
