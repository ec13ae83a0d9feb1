/** The settings of a conversation: its system prompt, how replies are sampled, their form, and the tools they may call. */

import { useCell } from "../shared/cell.js";
import { useDialog } from "../shared/dialog.js";
import { html, useEffect, useState } from "../shared/html.js";
import { askJson } from "../shared/http.js";
import { models, query } from "../shared/models.js";
import { changeSettings, open } from "./store.js";

/** @import {Settings} from "./conversation.js" */

const NUMBERS = /** @type {const} */ ([
  {
    name: "temperature",
    label: "Temperature",
    step: "0.05",
    hint: "0 always takes the likeliest token; higher is more varied",
  },
  { name: "top_p", label: "Top p", step: "0.01", hint: "keep the likeliest tokens up to this share; 1 keeps all" },
  { name: "top_k", label: "Top k", step: "1", hint: "keep so many of the likeliest tokens; 0 keeps all" },
  { name: "min_p", label: "Min p", step: "0.01", hint: "drop tokens less likely than this share of the likeliest" },
  { name: "repeat_penalty", label: "Repeat penalty", step: "0.05", hint: "above 1, what was just said is less likely" },
  {
    name: "max_tokens",
    label: "Most tokens",
    step: "1",
    hint: "a reply ends after so many; empty: the server's limit",
  },
  { name: "seed", label: "Seed", step: "1", hint: "the same number gives the same reply to the same prompt" },
]);
const SCHEMA = '{"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}';
const TOOLS =
  '[{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]';

/** @param {{isOpen: boolean, close: () => void}} props */
export function SettingsDialog({ isOpen, close }) {
  const dialog = useDialog(isOpen);
  const { settings } = useCell(open).meta;
  const defaults = useDefaults(isOpen);
  const [hint, setHint] = useState("");
  const change = (/** @type {{target: HTMLInputElement}} */ { target }) =>
    changeSettings(/** @type {Partial<Settings>} */ ({ [target.name]: target.value }));
  return html`
    <dialog ref=${dialog} class="settings" onClose=${close} aria-labelledby="settings-title">
      <header class="row">
        <h2 id="settings-title" class="grow">Settings of this conversation</h2>
        <button type="button" onClick=${() => dialog.current?.close()}>Close</button>
      </header>
      <form method="dialog" onInput=${change}>
        <label>System prompt <textarea name="system" rows="4" value=${settings.system}></textarea></label>
        <fieldset>
          <legend>Sampling</legend>
          ${NUMBERS.map(
            ({ name, label, step, hint: own }) => html`
            <label>${label} <input type="number" name=${name} step=${step} value=${settings[name]} placeholder=${defaults[name] ?? ""} title=${own} onFocus=${() => setHint(`${label}: ${own}.`)} /></label>`,
          )}
          <label>Thinking <select name="thinking" value=${settings.thinking}>
            <option value="">default</option><option value="on">on</option><option value="off">off</option>
          </select></label>
        </fieldset>
        <p class="quiet" aria-hidden="true">${hint || "What is empty is the server's own, shown in grey."}</p>
        <label>JSON schema of replies <${JsonArea} name="schema" value=${settings.schema} example=${SCHEMA} /></label>
        <label>Tools, as JSON <${JsonArea} name="tools" value=${settings.tools} example=${TOOLS} /></label>
      </form>
    </dialog>`;
}

/** @param {{name: string, value: string, example: string}} props */
function JsonArea({ name, value, example }) {
  let isJson = true;
  try {
    JSON.parse(value.trim() || "null");
  } catch {
    isJson = false;
  }
  return html`
    <textarea name=${name} rows="3" class="mono" spellcheck=${false} aria-invalid=${!isJson} value=${value} placeholder=${example}></textarea>
    ${!isJson && html`<span class="problem">not JSON yet</span>`}`;
}

/**
 * The server's own values, which hold where nothing is typed.
 * @param {boolean} isWanted
 * @returns {Record<string, string>}
 */
function useDefaults(isWanted) {
  const [defaults, setDefaults] = useState(/** @type {Record<string, string>} */ ({}));
  useEffect(() => {
    if (!isWanted) return;
    const { model } = open.value.meta.settings;
    if (models.value.find(({ id }) => id === model)?.status.value === "unloaded") return setDefaults({}); // asking would load it
    askJson(`/props${query(model)}`).then(
      ({ default_generation_settings: { params } }) => {
        const rounded = (/** @type {unknown} */ value) =>
          typeof value === "number" ? String(Number(value.toFixed(3))) : "";
        const shown = Object.fromEntries(Object.entries(params).map(([name, value]) => [name, rounded(value)]));
        setDefaults({ ...shown, seed: "random" });
      },
      () => {},
    );
  }, [isWanted]);
  return defaults;
}
