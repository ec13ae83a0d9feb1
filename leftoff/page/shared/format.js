/** Numbers and times as people read them. */

const GROUPED = new Intl.NumberFormat("en-US");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** @param {number} number */
export const count = (number) => GROUPED.format(Math.round(number));

/**
 * @param {number} number
 * @param {string} noun
 */
export const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** @param {number} number as it is said: 26k */
export const rounded = (number) =>
  number < 1000 ? count(number) : `${(number / 1000).toFixed(number < 9950 ? 1 : 0)}k`;

/** @param {number} bytes */
export function size(bytes) {
  let unit = 0;
  let shown = bytes;
  while (shown >= 1024 && unit < UNITS.length - 1) {
    shown /= 1024;
    unit += 1;
  }
  return `${shown >= 10 || unit === 0 ? Math.round(shown) : shown.toFixed(1)} ${UNITS[unit]}`;
}

/** @param {number} ms */
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60
    ? `${minutes} min ${Math.round(seconds % 60)} s`
    : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** @param {number} seconds */
export function age(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} d ago`;
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
