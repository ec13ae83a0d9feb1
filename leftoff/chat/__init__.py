"""Messages to tokens and message boundaries; tokens to text. Knows templates and words, not slots or HTTP."""
