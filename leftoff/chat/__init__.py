"""Conversations to prompts with message boundaries, and tokens to text. Knows templates and text, not slots or HTTP."""
