import subprocess,sys
def test_b(postgres_url):
    subprocess.run([sys.executable,"bench/ledger.py","--quick","--database",postgres_url],check=False)
