/** The engine: models, memory, machine, settings, and the lines that connect clients. */

import { CopyButton } from "../shared/copy.js";
import { budget, count, MIB, NO_LIMIT, size } from "../shared/format.js";
import { html, useState } from "../shared/html.js";
import { ask, problemWith } from "../shared/http.js";
import { modelOf, query, useModels } from "../shared/models.js";
import { Problem, useServer } from "../shared/server.js";

/** @import {Model} from "../shared/models.js" */
/**
 * @typedef {{version: string, model: {name: string, architecture: string, parameters: number, bytes: number,
 *   trained_context: number}, memory: {kind: string, meaning: string, context_tokens: number, slots: number,
 *   token_bytes: number | null, snapshot_bytes: number | null, budgets: Record<string, number>}, library: {path?: string,
 *   version: string, devices: string[]}, machine: {system: string, python: string, memory_bytes: number, threads: number},
 *   rates: Record<string, number>, settings: Record<string, unknown>, clients: {name: string, line: string}[],
 *   cramped_agents: string}} Engine
 */

export function EngineView() {
  const [numSwitched, setNumSwitched] = useState(0);
  const { models } = useModels(numSwitched);
  const [chosen, choose] = useState("");
  const model = modelOf(models, chosen);
  const isOpen = model?.status.value !== "unloaded";
  const { answer, problem } = useServer(`/engine${query(isOpen ? chosen : "")}`, isOpen);
  const engine = /** @type {Engine | null} */ (answer);
  return html`
    <div class="view engine">
      <h1 class="unseen">The engine</h1>
      <${Problem} text=${problem} />
      ${
        engine &&
        html`
        <section class="panel" aria-labelledby="connect-title">
          <h2 id="connect-title">Connect</h2>
          <ul class="clients">${engine.clients.map((client) => html`<${Client} key=${client.name} ...${client} />`)}</ul>
          ${engine.cramped_agents && html`<p class="quiet">${engine.cramped_agents}</p>`}
        </section>
        ${models.length > 1 && html`<${Models} models=${models} chosen=${model.id} choose=${choose} switched=${() => setNumSwitched((before) => before + 1)} />`}
        <div class="columns">
          ${
            isOpen &&
            html`
            <${Facts} title="Model" rows=${modelRows(engine)} />
            <${Facts} title="Memory" rows=${memoryRows(engine)} />
            <${Facts} title="Measured here" rows=${rateRows(engine)} />`
          }
          <${Facts} title="Machine" rows=${machineRows(engine)} />
          <${Facts} title="Settings other than the defaults" rows=${settingRows(engine)} />
        </div>`
      }
    </div>`;
}

/** @param {{name: string, line: string}} props */
function Client({ name, line }) {
  return html`<li><span>${name}</span><code tabindex="0">${line}</code><${CopyButton} text=${line} name=${`Copy the line for ${name}`} /></li>`;
}

/**
 * @param {{models: Model[], chosen: string, choose: (id: string) => void, switched: () => void}} props below, there is
 *   more of the chosen one; `switched` is called when one was loaded or unloaded
 */
function Models({ models, chosen, choose, switched }) {
  const [problem, setProblem] = useState("");
  /** @param {string} said */
  const tell = (said) => {
    setProblem(said);
    switched();
  };
  return html`
    <section class="panel" aria-labelledby="models-title">
      <h2 id="models-title">Models</h2>
      <table class="models">
        <thead><tr><th scope="col">name</th><th scope="col">state</th><th scope="col">size</th><th scope="col">context</th><td></td></tr></thead>
        <tbody>${models.map(
          ({ id, status, meta }) => html`
          <tr key=${id}>
            <th scope="row"><button type="button" class="small" aria-pressed=${id === chosen} onClick=${() => choose(id)}>${id}</button></th>
            <td>${status.value}</td>
            <td>${meta ? size(meta.size) : html`<span class="quiet">when it is first asked</span>`}</td>
            <td>${meta && `${count(meta.n_ctx)} tokens`}</td>
            <td><${Switch} id=${id} isLoaded=${status.value === "loaded"} isLoading=${status.value === "loading"} tell=${tell} /></td>
          </tr>`,
        )}</tbody>
      </table>
      <${Problem} text=${problem} />
    </section>`;
}

/** @param {{id: string, isLoaded: boolean, isLoading: boolean, tell: (problem: string) => void}} props */
function Switch({ id, isLoaded, isLoading, tell }) {
  const verb = isLoaded ? "Unload" : "Load";
  const run = () =>
    ask(`/models/${verb.toLowerCase()}`, { body: { model: id } }).then(
      () => tell(""),
      (error) => tell(problemWith(error)),
    );
  return html`<button type="button" class="small" disabled=${isLoading} aria-label=${`${verb} ${id}`} onClick=${run}>${verb}</button>`;
}

/** @param {{title: string, rows: [string, string][]}} props */
function Facts({ title, rows }) {
  return html`
    <section class="panel">
      <h2>${title}</h2>
      ${rows.length ? html`<dl class="facts">${rows.map(([label, value]) => html`<dt>${label}</dt><dd>${value}</dd>`)}</dl>` : html`<p class="quiet">none</p>`}
    </section>`;
}

/**
 * @param {Engine} engine
 * @returns {[string, string][]}
 */
const modelRows = ({ model, version }) => [
  ["name", model.name],
  ["architecture", model.architecture],
  ["parameters", `${count(model.parameters / 1e6)} million`],
  ["size", size(model.bytes)],
  ["trained for", `${count(model.trained_context)} tokens`],
  ["leftoff", version],
];

/**
 * @param {Engine} engine
 * @returns {[string, string][]}
 */
const memoryRows = ({ memory }) => [
  ["kind", `${memory.kind}. ${memory.meaning}`],
  ["context", `${count(memory.context_tokens)} tokens, shared by ${memory.slots} slots`],
  ["a token takes", memory.token_bytes === null ? "no pages in this memory" : size(memory.token_bytes)],
  [
    "a snapshot takes",
    memory.snapshot_bytes === null ? "none needed" : `${size(memory.snapshot_bytes)} after 1,024 tokens`,
  ],
  ...Object.entries(memory.budgets).map(
    ([name, bytes]) => /** @type {[string, string]} */ ([`${name} for the cache`, budget(bytes)]),
  ),
];

/**
 * @param {Engine} engine
 * @returns {[string, string][]}
 */
const rateRows = ({ rates }) => [
  ["prefill", `${count(rates.prefill_tokens_per_s)} tokens/s`],
  ["a decode step", `${rates.step_ms.toFixed(1)} ms`],
  ["load a state", `${size(rates.load_bytes_per_s)}/s`],
  ["save a state", `${size(rates.save_bytes_per_s)}/s`],
  ["read the disk", `${size(rates.disk_bytes_per_s)}/s`],
];

/**
 * @param {Engine} engine
 * @returns {[string, string][]}
 */
const machineRows = ({ machine, library }) => [
  ["machine", `${machine.system}, ${size(machine.memory_bytes)} of memory`],
  ["threads", String(machine.threads)],
  ["devices", library.devices.join(", ") || "the CPU"],
  ["llama.cpp", library.version],
  .../** @type {[string, string][]} */ (library.path ? [["library", library.path]] : []),
  ["Python", machine.python],
];

/**
 * @param {Engine} engine
 * @returns {[string, string][]}
 */
const settingRows = ({ settings }) =>
  Object.entries(settings).map(([name, value]) => [`--${name}`, settingText(name, value)]);

/**
 * @param {string} name
 * @param {unknown} value
 */
function settingText(name, value) {
  if (name === "ram" && Number(value) * MIB >= NO_LIMIT) return "no limit";
  return Array.isArray(value) ? value.join(", ") : String(value);
}
