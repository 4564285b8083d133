"""The lab writes archives of images in the format of `docker save`."""

import hashlib
import io
import json
import tarfile

from lab.images import docker_archive


def members(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        files = {member.name: opened.extractfile(member) for member in opened}
        return {name: file.read() for name, file in files.items() if file}


def test_every_name_and_digest_in_an_archive_matches_its_content() -> None:
    commands = {"a:1": ["/a"], "b:1": ["/b", "x"]}
    content = members(docker_archive(b"layer", commands))
    manifest = json.loads(content["manifest.json"])
    assert [image["RepoTags"] for image in manifest] == [[tag] for tag in commands]
    for image, command in zip(manifest, commands.values(), strict=True):
        config = content[image["Config"]]
        assert image["Config"] == f"{hashlib.sha256(config).hexdigest()}.json"
        (layer,) = image["Layers"]
        assert content[layer] == b"layer"
        document = json.loads(config)
        assert document["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(b'layer').hexdigest()}"]
        assert document["config"]["Cmd"] == command
