"""The pages that a person looks at; the gateway's app serves them."""
