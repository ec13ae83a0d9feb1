/** What the cache did for one turn: a bar, times, and the whole report behind it. */

import { OriginBar } from "../shared/bar.js";
import { html, useId, useState } from "../shared/html.js";
import { ReportView, sentence } from "../shared/report.js";
import { inspect, leave } from "./inspection.js";

/** @import {Report} from "../shared/origins.js" */
/** @import {Message} from "./message.js" */

/** @param {{message: Message}} props a reply with a report */
export function OriginsView({ message }) {
  const [isOpen, setOpen] = useState(false);
  const id = useId();
  const report = /** @type {Report} */ (message.report);
  const toggle = () => {
    setOpen(!isOpen);
    inspect(message);
  };
  return html`
    <footer class="turn">
      <button type="button" class="origins" aria-expanded=${isOpen} aria-controls=${id} onClick=${toggle}
        onMouseEnter=${() => inspect(message)} onMouseLeave=${leave} onFocus=${() => inspect(message)} onBlur=${leave}>
        <${OriginBar} origins=${report.origins} />
        <span class="numbers">${sentence(report)}</span>
      </button>
      <div id=${id} hidden=${!isOpen}>${isOpen && html`<${ReportView} report=${report} />`}</div>
    </footer>`;
}
