// The part of marked that the page uses, for the type checker.
export type Token = { type: string; raw: string; text?: string; lang?: string; href?: string };
export class Marked {
  constructor(...extensions: object[]);
  lexer(text: string): Token[] & { links: object };
  parser(tokens: Token[]): string;
}
