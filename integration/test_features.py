"""What PyMongo builds on operations moves as they do: GridFS, encryption, and ``mongodb+srv``.

Each feature is used once by MongoClient and once by AsyncMongoClient, where there is one.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import socketserver
import threading
from typing import TYPE_CHECKING, Any, AsyncIterator, Iterator, Sequence

import dns.asyncresolver
import dns.message
import dns.rdatatype
import dns.resolver
import dns.rrset
import gridfs
import pymongo
import pytest
from bson.binary import STANDARD
from bson.codec_options import CodecOptions
from pymongo import common
from pymongo.encryption import ClientEncryption
from pymongo.encryption_options import AutoEncryptionOpts
from support import (
    HAS_ASYNC,
    MARKS_UNKNOWN,
    RETRYABLE,
    VERSION,
    Asked,
    finished,
    knows_all,
    knows_all_async,
    prefer,
    run,
    wait_until_async,
)

if TYPE_CHECKING:
    from pymongo_deprio import Address, Retry
    from pymongo_deprio.cluster import Cluster

CLIENTS = ["MongoClient", "AsyncMongoClient"] if HAS_ASYNC else ["MongoClient"]


@pytest.fixture(params=CLIENTS)
def of(request: pytest.FixtureRequest) -> Any:
    """Return the name of a class of clients."""
    return request.param


@contextlib.asynccontextmanager
async def opened(
    of: str, uri: str, asked: Asked, near: Address, count: int = 2, **options: Any
) -> AsyncIterator[Any]:
    """Give a client that knows all of its mongoses, and begins each operation at the near one."""
    client = getattr(pymongo, of)(
        uri,
        event_listeners=[asked],
        server_selector=prefer(near),
        localThresholdMS=1000,
        **options,
    )
    try:
        await finished(client.admin.command("ping"))
        await ready(client, count)
        yield client
    finally:
        await finished(client.close())


async def ready(client: Any, count: int = 2) -> None:
    """Wait until a client knows all mongoses: an error makes PyMongo 3.9 and 3.10 forget one."""
    if isinstance(client, pymongo.MongoClient):
        knows_all(client, count)
    else:
        await knows_all_async(client, count)


async def count_of(collection: Any) -> int:
    """Count the documents of a collection."""
    return int(await finished(collection.count_documents({})))


def twice(sick: Address, well: Address) -> list[Address]:
    """Return where two operations are sent, right after each other."""
    return [sick, well, well] if MARKS_UNKNOWN else [sick, well, sick, well]


def moved(retries: list[Retry], asked: Asked, command: str, *servers: Address) -> None:
    """Check that a command was sent to these, failed on the first one, and then moved each time."""
    sick, well = servers[:2]
    failures = servers.count(sick)
    assert asked.where("started", command) == list(servers)
    assert asked.where("failed", command) == [sick] * failures
    assert [(event.failed, event.chosen) for event in retries] == [((sick,), well)] * failures


# -- GridFS ----------------------------------------------------------------------------------------

CONTENT = bytes(range(256)) * 12
CHUNK = 256


def bucket_of(client: Any) -> Any:
    """Return a bucket of files that are cut into small pieces."""
    if isinstance(client, pymongo.MongoClient):
        return gridfs.GridFSBucket(client.test, chunk_size_bytes=CHUNK)
    return gridfs.AsyncGridFSBucket(client.test, chunk_size_bytes=CHUNK)


@pytest.fixture
def no_files(cluster: Cluster) -> None:
    """Let there be no files from before."""
    with cluster.client() as client:
        client.test.fs.files.drop()
        client.test.fs.chunks.drop()


@pytest.mark.parametrize("skip", [0, 1])
def test_gridfs_upload(
    cluster: Cluster, asked: Asked, retries: list[Retry], no_files: None, of: str, skip: int
) -> None:
    """A file that the near mongos stops to take goes on to the other one, with each piece once."""
    sick, well = (mongos.address for mongos in cluster.mongos)

    async def main() -> None:
        async with opened(of, cluster.uri, asked, sick) as client:
            bucket = bucket_of(client)
            with cluster.mongos[0].fail_command("insert", skip=skip, **RETRYABLE) as fail_point:
                number = await finished(
                    bucket.upload_from_stream("name", io.BytesIO(CONTENT), metadata={"a": 1})
                )
            assert await count_of(client.test.fs.files) == 1
            assert await count_of(client.test.fs.chunks) == len(CONTENT) / CHUNK
            out = await finished(bucket.open_download_stream(number))
            assert out.metadata == {"a": 1}
            assert await finished(out.read()) == CONTENT
            await finished(out.close())
        succeeded = asked.where("succeeded", "insert")
        assert succeeded[:skip] == [sick] * skip
        assert set(succeeded[skip:]) == {well}
        assert len(asked.where("failed", "insert")) == fail_point.hits == len(retries) > 0
        assert {(event.failed, event.chosen) for event in retries} == {((sick,), well)}
        if not MARKS_UNKNOWN:
            assert len(retries) == len(succeeded[skip:])

    run(main())


def test_gridfs_download_and_delete(
    cluster: Cluster, asked: Asked, retries: list[Retry], no_files: None, of: str
) -> None:
    """What the near mongos does not find, the other one does; and so it deletes it."""
    sick, well = (mongos.address for mongos in cluster.mongos)

    async def main() -> None:
        async with opened(of, cluster.uri, asked, sick) as client:
            bucket = bucket_of(client)
            number = await finished(bucket.upload_from_stream("name", CONTENT))
            asked.reset()
            target = io.BytesIO()
            with cluster.mongos[0].fail_command("find", **RETRYABLE):
                await finished(bucket.download_to_stream(number, target))
            assert target.getvalue() == CONTENT
            moved(retries, asked, "find", *twice(sick, well))
            await ready(client)
            asked.reset()
            retries.clear()
            # The second of its commands, for the pieces, is none that PyMongo retries.
            with cluster.mongos[0].fail_command("delete", times=1, **RETRYABLE):
                await finished(bucket.delete(number))
            assert asked.where("started", "delete")[:2] == [sick, well]
            assert [(event.failed, event.chosen) for event in retries] == [((sick,), well)]
            assert await count_of(client.test.fs.files) == 0
            assert await count_of(client.test.fs.chunks) == 0

    run(main())


# -- Encryption ------------------------------------------------------------------------------------

VAULT = "test.vault"
KMS = {"local": {"key": b"k" * 96}}
ALGORITHM = "AEAD_AES_256_CBC_HMAC_SHA_512-Deterministic"


@pytest.fixture
def vault(cluster: Cluster) -> None:
    """Let there be no keys from before."""
    pytest.importorskip("pymongocrypt")
    with cluster.client() as client:
        client.test.vault.drop()
        client.test.secrets.drop()


@contextlib.asynccontextmanager
async def encryption_of(client: Any) -> AsyncIterator[Any]:
    """Give what encrypts with the keys of the vault, which this client reads."""
    kind: Any = ClientEncryption
    if not isinstance(client, pymongo.MongoClient):
        kind = importlib.import_module("pymongo.asynchronous.encryption").AsyncClientEncryption
    encryption: Any = kind(KMS, VAULT, client, CodecOptions(uuid_representation=STANDARD))
    yield encryption
    await finished(encryption.close())


@contextlib.contextmanager
def sick_for(
    cluster: Cluster, asked: Asked, retries: list[Retry], command: str, *servers: Address
) -> Iterator[None]:
    """Let the near mongos fail a command, and check that it moved to the other one."""
    asked.reset()
    retries.clear()
    with cluster.mongos[0].fail_command(command, **RETRYABLE):
        yield
    moved(retries, asked, command, *servers)


def test_encryption(
    cluster: Cluster, asked: Asked, retries: list[Retry], vault: None, of: str
) -> None:
    """A key that the near mongos fails to keep or to give is kept and given by the other one.

    So it is when a client decrypts what it has found, which it does in the middle of an operation.
    """
    sick, well = (mongos.address for mongos in cluster.mongos)

    async def encrypt() -> None:
        async with opened(of, cluster.uri, asked, sick) as client:
            async with encryption_of(client) as encryption:
                with sick_for(cluster, asked, retries, "insert", sick, well):
                    key = await finished(encryption.create_data_key("local"))
                await ready(client)
                with sick_for(cluster, asked, retries, "find", sick, well):
                    secret = await finished(encryption.encrypt("tea", ALGORITHM, key_id=key))
            async with encryption_of(client) as encryption:  # that knows no keys yet
                await ready(client)
                with sick_for(cluster, asked, retries, "find", sick, well):
                    assert await finished(encryption.decrypt(secret)) == "tea"
            await finished(client.test.secrets.insert_one({"_id": 1, "item": secret}))

    async def decrypt() -> None:
        # Only what encrypts by itself needs more of MongoDB: a program that analyses each command.
        automatic = AutoEncryptionOpts(KMS, VAULT, bypass_auto_encryption=True)
        # Without a limit of its pool a client reads the keys by itself, and not by another client.
        options: Any = {"auto_encryption_opts": automatic, "maxPoolSize": None}
        async with opened(of, cluster.uri, asked, sick, **options) as client:
            with sick_for(cluster, asked, retries, "find", *twice(sick, well)):
                found = await finished(client.test.secrets.find_one({"_id": 1}))
            assert found == {"_id": 1, "item": "tea"}

    run(encrypt())
    run(decrypt())


# -- mongodb+srv -----------------------------------------------------------------------------------

SRV_URI = "mongodb+srv://mongoses.0.0.1/?ssl=false"
"""Stands for mongoses in the domain 0.0.1, as 127.0.0.1 is by its letters."""


class NameServer(socketserver.UDPServer):
    """Answers each question for SRV records by those of some servers, and others by none."""

    def __init__(self, servers: Sequence[Address]) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.servers = servers

    def finish_request(self, request: Any, client_address: Any) -> None:
        message, sock = request
        query = dns.message.from_wire(message)
        response = dns.message.make_response(query)
        (question,) = query.question
        if question.rdtype == dns.rdatatype.SRV:
            records = [f"0 0 {port} {host}." for host, port in self.servers]
            response.answer = [dns.rrset.from_text(question.name, 0, "IN", "SRV", *records)]
        sock.sendto(response.to_wire(), client_address)


@pytest.fixture
def names(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    """Give a name server that is asked in this test, and knows the mongoses of the cluster."""
    with NameServer([mongos.address for mongos in cluster.mongos]) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        for module in dns.resolver, dns.asyncresolver:
            resolver = module.Resolver(configure=False)
            resolver.nameservers, resolver.port = ["127.0.0.1"], server.server_address[1]
            monkeypatch.setattr(module, "default_resolver", resolver)
        yield server
        server.shutdown()
        thread.join()


async def find_once(
    client: Any, cluster: Cluster, asked: Asked, *expected: Address, times: int | None = None
) -> None:
    """Find something while the first mongos is sick, and check who was asked."""
    asked.reset()
    with cluster.mongos[0].fail_command("find", times=times, **RETRYABLE):
        await finished(client.test.features.find_one())
    assert asked.where("started", "find") == list(expected)


srv = pytest.mark.filterwarnings("ignore:please use dns.resolver.resolve:DeprecationWarning")


@srv
def test_srv(
    cluster: Cluster, asked: Asked, retries: list[Retry], names: NameServer, of: str
) -> None:
    """A client that finds the mongoses by their SRV records retries on another one of them."""
    sick, well = (mongos.address for mongos in cluster.mongos)

    async def main() -> None:
        async with opened(of, SRV_URI, asked, sick) as client:
            assert client.nodes == {sick, well}
            await find_once(client, cluster, asked, sick, well)

    run(main())
    moved(retries, asked, "find", sick, well)


@srv
@pytest.mark.skipif(VERSION < (3, 10), reason="PyMongo looks for new records from 3.10 on")
def test_srv_polling(
    three: Cluster,
    asked: Asked,
    enabled: None,
    names: NameServer,
    monkeypatch: pytest.MonkeyPatch,
    of: str,
) -> None:
    """A retry goes to a mongos that came with new records, and to none that went with old ones."""
    monkeypatch.setattr(common, "MIN_SRV_RESCAN_INTERVAL", 0.05)
    sick, leaving, coming = (mongos.address for mongos in three.mongos)
    names.servers = [sick, leaving]

    async def main() -> None:
        # At the longest it waits that long before it looks for new records.
        async with opened(of, SRV_URI, asked, sick, heartbeatFrequencyMS=50) as client:

            async def become(*servers: Address) -> None:
                names.servers = servers
                await wait_until_async(lambda: client.nodes == set(servers), "the new records")

            await find_once(client, three, asked, sick, leaving)
            await become(sick, coming)
            await find_once(client, three, asked, sick, coming)
            await become(sick)
            await find_once(client, three, asked, sick, sick, times=1)
            await become(leaving, sick)
            await find_once(client, three, asked, sick, leaving)

    run(main())
