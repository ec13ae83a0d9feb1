"""The commands people type. Thin: each reads its flags, calls the layers below, and shows what they answer."""
