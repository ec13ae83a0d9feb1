/** Requests to the server that the page came from, with the key of this session if there is one. */

import { Cell } from "./cell.js";

const KEY = "leftoff-key";

/** Kept by the browser until its tab is closed. */
export const apiKey = new Cell(sessionStorage.getItem(KEY) ?? "");
/** The server has refused a request for want of a key, or because it does not know this one. */
export const isKeyNeeded = new Cell(false);

/** @param {string} key */
export function setKey(key) {
  sessionStorage.setItem(KEY, key);
  apiKey.value = key;
  isKeyNeeded.value = false;
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

/**
 * @param {string} path
 * @param {{method?: string, body?: unknown, signal?: AbortSignal}} [options]
 * @returns {Promise<Response>} a successful one
 */
export async function ask(path, { method, body, signal } = {}) {
  /** @type {Record<string, string>} */
  const headers = apiKey.value ? { Authorization: `Bearer ${apiKey.value}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, {
    method: method ?? (body === undefined ? "GET" : "POST"),
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
  });
  if (response.ok) return response;
  if (response.status === 401) isKeyNeeded.value = true;
  throw new ApiError(response.status, await problemOf(response));
}

/**
 * @param {string} path
 * @param {{method?: string, body?: unknown, signal?: AbortSignal}} [options]
 * @returns {Promise<any>}
 */
export async function askJson(path, options) {
  return (await ask(path, options)).json();
}

/** @param {Response} response */
async function problemOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered ${response.status}`;
  }
}
