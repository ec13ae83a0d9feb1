/** Colours for code, in the languages that replies have most. */

import bash from "../vendor/highlight/bash.js";
import core from "../vendor/highlight/core.js";
import cpp from "../vendor/highlight/cpp.js";
import diff from "../vendor/highlight/diff.js";
import go from "../vendor/highlight/go.js";
import java from "../vendor/highlight/java.js";
import javascript from "../vendor/highlight/javascript.js";
import json from "../vendor/highlight/json.js";
import python from "../vendor/highlight/python.js";
import rust from "../vendor/highlight/rust.js";
import sql from "../vendor/highlight/sql.js";
import xml from "../vendor/highlight/xml.js";
import yaml from "../vendor/highlight/yaml.js";

const MAX_CHARACTERS = 20_000;
const GRAMMARS = { bash, cpp, diff, go, java, javascript, json, python, rust, sql, xml, yaml };
for (const [name, grammar] of Object.entries(GRAMMARS)) core.registerLanguage(name, grammar);
core.registerAliases(["c", "h"], { languageName: "cpp" }); // whose grammar reads C as well

/**
 * @param {string} text
 * @param {string} language
 * @returns {string | null} HTML that is still to be cleaned; null for a language that is not known, or too much text
 */
export function highlighted(text, language) {
  const name = language.toLowerCase();
  if (!core.getLanguage(name) || text.length > MAX_CHARACTERS) return null;
  return core.highlight(text, { language: name, ignoreIllegals: true }).value;
}
