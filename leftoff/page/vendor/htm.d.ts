// The part of htm that the page uses, for the type checker.
import type { VNode } from "./preact.js";
declare const htm: {
  bind(h: unknown): (parts: TemplateStringsArray, ...values: unknown[]) => VNode;
};
export default htm;
