/** Numbers and times as people read them. A unit is chosen by what is shown, which is rounded: 1023.9 KiB are 1.0 MiB. */

const GROUPED = new Intl.NumberFormat("en-US");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
export const MIB = 2 ** 20;
export const NO_LIMIT = 2 ** 50; // as the server counts it, in bytes

/** @param {number} number */
export const count = (number) => GROUPED.format(Math.round(number));

/**
 * @param {number} number
 * @param {string} noun
 */
export const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** @param {number} number as it is said: 26k */
export const rounded = (number) =>
  number < 999.5 ? count(number) : `${(number / 1000).toFixed(number < 9950 ? 1 : 0)}k`;

/** @param {number} bytes */
export function size(bytes) {
  let unit = 0;
  let shown = bytes;
  while (Math.round(shown) >= 1024 && unit < UNITS.length - 1) {
    shown /= 1024;
    unit += 1;
  }
  return `${shown >= 9.95 || unit === 0 ? Math.round(shown) : shown.toFixed(1)} ${UNITS[unit]}`;
}

/**
 * @param {number} bytes that may be used
 * @param {string} [before] what is written before a size
 */
export const budget = (bytes, before = "") => (bytes < NO_LIMIT ? before + size(bytes) : "no limit");

/** @param {number} ms */
export function duration(ms) {
  if (Math.round(ms) < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${(ms / 1000).toFixed(ms < 9950 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min ${seconds % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** @param {number} seconds */
export function age(seconds) {
  const [whole, minutes, hours, days] = [1, 60, 3600, 86_400].map((unit) => Math.round(seconds / unit));
  if (whole < 60) return `${whole} s ago`;
  if (minutes < 60) return `${minutes} min ago`;
  return hours < 24 ? `${hours} h ago` : `${days} d ago`;
}

/** @param {number} share between 0 and 1 */
export const percent = (share) => `${share > 0 && share < 0.01 ? "<1" : Math.round(100 * share)} %`;

const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DATE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "long" });
const DATE_AND_YEAR = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "long", year: "numeric" });
const DAY_MS = 86_400_000;

/** @param {number} ms since 1970 */
export function day(ms) {
  const [then, now] = [new Date(ms), new Date()];
  const days = Math.round((new Date(now).setHours(0, 0, 0, 0) - new Date(ms).setHours(0, 0, 0, 0)) / DAY_MS);
  if (days < 2) return days < 1 ? "Today" : "Yesterday";
  return (then.getFullYear() === now.getFullYear() ? DATE : DATE_AND_YEAR).format(then);
}

/** @param {number} ms since 1970 */
export const moment = (ms) => (day(ms) === "Today" ? TIME.format(ms) : `${day(ms)}, ${TIME.format(ms)}`);
