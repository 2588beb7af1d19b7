"""The gateway: OpenAI's API in front of any number of replicas reached over HTTP."""
