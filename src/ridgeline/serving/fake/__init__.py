"""A replica without weights: OpenAI's wire format with a real timing model."""
