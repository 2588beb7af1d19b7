import subprocess,sys
def test_b(postgres_url):
    subprocess.run([sys.executable,"/tmp/rl/led_bench2.py",postgres_url],check=True)
