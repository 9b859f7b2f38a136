"""What `iris doctor` finds out about files of this host."""

from pathlib import Path

from iris.doctor.collect import private_files, readable_by_others


def test_key_files_that_others_may_read_are_found(tmp_path: Path):
    keys = tmp_path / "keys"
    keys.mkdir()
    for name, mode in {"state.seed": 0o600, "worker-w0.seed": 0o640, "gateway.seed": 0o604}.items():
        (keys / name).write_text("SU")
        (keys / name).chmod(mode)
    private = tmp_path / "tls.key"
    private.write_text("")
    private.chmod(0o644)
    config = tmp_path / "iris.toml"
    config.write_text(
        f'[nats]\nnkey_seed = "{keys}/state.seed"\n[gateway]\ntls_key = "{private}"\n'
    )
    found = readable_by_others(dict.fromkeys(private_files(tmp_path / "none", str(config))))
    assert found == (str(private), str(keys / "gateway.seed"), str(keys / "worker-w0.seed"))
