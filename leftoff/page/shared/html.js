/** Components without a build step: preact, its hooks, and templates as tagged strings. */

import htm from "../vendor/htm.js";
import { h } from "../vendor/preact.js";

export { useEffect, useId, useLayoutEffect, useMemo, useReducer, useRef, useState } from "../vendor/hooks.js";
export { render } from "../vendor/preact.js";
export const html = htm.bind(h);
