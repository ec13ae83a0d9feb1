// The part of highlight.js that the page uses, for the type checker.
declare const core: {
  registerLanguage(name: string, grammar: (core: unknown) => object): void;
  registerAliases(names: string[], options: { languageName: string }): void;
  getLanguage(name: string): object | undefined;
  highlight(text: string, options: { language: string; ignoreIllegals?: boolean }): { value: string };
};
export default core;
