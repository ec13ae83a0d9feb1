// DOMPurify sets a global: its file is imported for that effect alone.
export {};
declare global {
  var DOMPurify: {
    sanitize(html: string, options: object): string;
    addHook(name: string, hook: (node: Element) => void): void;
  };
}
