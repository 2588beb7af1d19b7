"""What a 20,000-token prompt does to 32 streams: whole, and in chunks.

python examples/simulate/chunked_prefill.py
"""

from ridgeline.serving.simulate.scenarios.chunked_prefill import chunked_prefill, on_nodes

node = on_nodes("llama-3.1-70b", "h100-sxm", 8, compute_share=0.5)
print("llama-3.1-70b on 8 h100-sxm at half of their peak, 32 streams, one prompt of 20,000 tokens")
print(f"{'tokens a step':>13}  {'longest gap':>11}  {'first token of the prompt':>25}")
for one in chunked_prefill(node, 20_000, (32_768, 8_192, 2_048, 512)):
    gap, first = one.longest_gap_s * 1e3, one.prompt_ttft_s
    print(f"{one.budget_tokens:>13,}  {gap:>8.0f} ms  {first:>23.2f} s")
