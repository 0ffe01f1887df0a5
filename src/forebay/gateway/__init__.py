"""The gateway: an OpenAI-compatible front that admits each request when its GPU has room."""
