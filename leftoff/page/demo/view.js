/** The demonstration: the same questions with the cache off and on, and the time to the first token as bars. */

import { OriginBar } from "../shared/bar.js";
import { Cell, useCell } from "../shared/cell.js";
import { count, duration } from "../shared/format.js";
import { html, useEffect, useState } from "../shared/html.js";
import { problemWith } from "../shared/http.js";
import { useModels } from "../shared/models.js";
import { Problem, useServer } from "../shared/server.js";
import { Performance } from "./play.js";

/** @import {Scene, Side, Step, Turn} from "./play.js" */
/** @typedef {Record<string, Turn>} Turns by `scene step side` */
/** @typedef {{key: string, began: number} | null} Current the bar that grows now */

const SIDES = /** @type {const} */ (["off", "on"]);

// It plays on while another view is looked at.
const played = new Cell(/** @type {Turns} */ ({}));
const grown = new Cell(/** @type {Current} */ (null));
const failure = new Cell("");
let stopper = new AbortController();

export function DemoView() {
  const { answer, problem: silence } = useServer("/page/scenes");
  const { models } = useModels();
  const scenes = /** @type {Scene[]} */ (answer?.scenes ?? []).filter(
    (scene) => !scene.restarts && scene.num_models <= Math.max(1, models.length),
  );
  const turns = useCell(played);
  const current = useCell(grown);
  const problem = useCell(failure);
  const longest = Math.max(1, ...Object.values(turns).map((turn) => turn.ms));
  return html`
    <div class="view demo">
      <header class="panel">
        <h1>The same questions, with the cache off and on</h1>
        <p class="quiet">A bar is the time to the first token of a reply, measured now on this server. “Off” asks with a cache that
          knows nothing. What this leaves in the cache is removed at the end.</p>
        ${
          current
            ? html`<button type="button" class="main" onClick=${() => stopper.abort()}>Stop</button>`
            : html`<button type="button" class="main" disabled=${!scenes.length} onClick=${() => play(scenes)}>Play</button>`
        }
        <${Problem} text=${problem || silence} />
        <p role="status">${!current && verdict(turns)}</p>
      </header>
      ${scenes.map((scene, index) => html`<${SceneView} key=${index} scene=${scene} index=${index} turns=${turns} current=${current} longest=${longest} />`)}
    </div>`;
}

/** @param {Scene[]} scenes */
async function play(scenes) {
  stopper = new AbortController();
  const { signal } = stopper;
  played.value = {};
  failure.value = "";
  const performance = new Performance();
  try {
    for (const { key, scene, step, side } of bars(scenes)) {
      grown.value = { key, began: Date.now() };
      played.value = { ...played.value, [key]: await performance.ask(scene, step, side, signal) };
    }
  } catch (error) {
    if (!signal.aborted) failure.value = problemWith(error);
  }
  grown.value = null;
  await performance.close();
}

/** @param {Scene[]} scenes every bar, in the order in which they are played */
function bars(scenes) {
  return scenes.flatMap((scene, index) =>
    scene.steps.flatMap((step, number) =>
      SIDES.map((side) => ({ key: `${index} ${number} ${side}`, scene, step, side })),
    ),
  );
}

/** @param {Turns} turns */
function verdict(turns) {
  const sum = (/** @type {Side} */ side) =>
    Object.entries(turns).reduce((total, [key, turn]) => total + (key.endsWith(side) ? turn.ms : 0), 0);
  const [off, on] = [sum("off"), sum("on")];
  if (!off || !on) return "";
  return `All first tokens together: ${duration(off)} with the cache off, ${duration(on)} with it on, ${(off / on).toFixed(1)} times sooner.`;
}

/** @param {{scene: Scene, index: number, turns: Turns, current: Current, longest: number}} props */
function SceneView({ scene, index, turns, current, longest }) {
  return html`
    <section class="panel scene" aria-label=${scene.title}>
      <h2>${index + 1} · ${scene.title}</h2>
      <p class="quiet">${scene.story}</p>
      ${scene.steps.map(
        (step, number) => html`
        <div class="step">
          <p><span class="quiet">${step.label}</span> ${step.question}</p>
          ${SIDES.map(
            (side) => html`<${SideBar} key=${side} side=${side} turn=${turns[`${index} ${number} ${side}`]}
            began=${current?.key === `${index} ${number} ${side}` ? current.began : 0} longest=${longest} />`,
          )}
        </div>`,
      )}
    </section>`;
}

/** @param {{side: Side, turn: Turn | undefined, began: number, longest: number}} props */
function SideBar({ side, turn, began, longest }) {
  const ms = useElapsed(began);
  const shown = turn?.ms ?? (began ? ms : 0);
  const report = turn?.report;
  return html`
    <div class="side">
      <span class="quiet">${side}</span>
      <span class="track"><span class=${side === "off" ? "now" : "live"} style=${{ width: `${(100 * shown) / Math.max(longest, shown)}%` }}></span></span>
      <span class="ms">${shown > 0 && duration(shown)}</span>
      <span class="quiet">${report && html`<${OriginBar} origins=${report.origins} /> ${count(report.reused)} reused, ${count(report.computed)} read`}</span>
    </div>`;
}

/** @param {number} began in milliseconds; 0 while it does not run */
function useElapsed(began) {
  const [ms, setMs] = useState(0);
  useEffect(() => {
    if (!began) return;
    const timer = setInterval(() => setMs(Date.now() - began), 50);
    return () => clearInterval(timer);
  }, [began]);
  return ms;
}
