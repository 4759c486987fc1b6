"""Certificates of a test cluster and the kubeconfigs that carry them. Made by openssl, valid for 30 days, never kept."""

import base64
import subprocess
from dataclasses import dataclass
from pathlib import Path

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Authority:
    """One folder with a certificate authority and what it issued: NAME.key, NAME.crt, NAME.kubeconfig."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> "Authority":
        """A new authority in a new folder, with the key pair that signs ServiceAccount tokens (sa.key, sa.pub)."""
        folder.mkdir(parents=True, mode=0o700)
        authority = cls(folder)
        authority._openssl("req", "-x509", *_NEW_KEY, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=rig-ca", "-days", "30")
        authority._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "sa.key")
        authority._openssl("ec", "-in", "sa.key", "-pubout", "-out", "sa.pub")
        return authority

    def issue(self, name: str, subject: str, alternatives: str) -> None:
        """A key and a certificate; the subject's O is a Kubernetes group and its CN the user."""
        self._openssl("req", *_NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
        (self.folder / f"{name}.ext").write_text(f"subjectAltName={alternatives}\n")
        signed_by = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30")
        self._openssl("x509", "-req", "-in", f"{name}.csr", *signed_by, "-out", f"{name}.crt", "-extfile", f"{name}.ext")

    def kubeconfig(self, name: str, server: str) -> Path:
        """A kubeconfig for the holder of NAME.crt."""
        return self._write(
            name, server, f"client-certificate-data: {self._encoded(f'{name}.crt')}, client-key-data: {self._encoded(f'{name}.key')}"
        )

    def kubeconfig_with_token(self, name: str, server: str, token: str) -> Path:
        """A kubeconfig for the bearer of a token."""
        return self._write(name, server, f"token: {token}")

    def _write(self, name: str, server: str, user: str) -> Path:
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(
            "apiVersion: v1\nkind: Config\n"
            f"clusters: [{{name: rig, cluster: {{server: '{server}', certificate-authority-data: {self._encoded('ca.crt')}}}}}]\n"
            f"users: [{{name: rig, user: {{{user}}}}}]\n"
            "contexts: [{name: rig, context: {cluster: rig, user: rig}}]\ncurrent-context: rig\n"
        )
        path.chmod(0o600)
        return path

    def _encoded(self, file: str) -> str:
        return base64.b64encode((self.folder / file).read_bytes()).decode()

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)
