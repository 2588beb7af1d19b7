"""Which header fields pass, and which never do."""

from multidict import CIMultiDict

from ridgeline.serving.gateway.config import ReplicaAddress
from ridgeline.serving.gateway.live_replica import LiveReplica
from ridgeline.serving.gateway.upstream import sent_headers
from ridgeline.serving.policy.route import Replica

RECEIVED = CIMultiDict(
    {
        "Host": "gateway",
        "AUTHORIZATION": "Bearer the client's",
        "Cookie": "session=1",
        "Content-Type": "application/json",
        "Content-Length": "7",
        "Content-Encoding": "gzip",
        "Transfer-Encoding": "chunked",
        "Connection": "keep-alive",
        "Accept-Encoding": "br",
        "traceparent": "00-abc-def-01",
        "X-Tenant": "research",
    }
)


def test_only_what_is_meant_for_the_replica_is_sent() -> None:
    replica = LiveReplica(ReplicaAddress("r", "http://r"), Replica("r"))
    assert sent_headers(RECEIVED, replica, "req-1") == {
        "Content-Type": "application/json",
        "traceparent": "00-abc-def-01",
        "X-Tenant": "research",
        "X-Request-Id": "req-1",
    }


def test_the_replicas_own_key_replaces_the_clients() -> None:
    replica = LiveReplica(ReplicaAddress("r", "http://r", api_key="theirs"), Replica("r"))
    assert sent_headers(RECEIVED, replica, "req-1")["Authorization"] == "Bearer theirs"
