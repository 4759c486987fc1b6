"""The tier's own ground: the server is real, and a ServiceAccount may do what RBAC lets it and no more."""

import pytest

from tests.cluster.apiserver import ApiServer, KubectlError, eventually


def test_objects_survive_a_round_trip_with_their_status(apiserver: ApiServer) -> None:
    namespace = apiserver.namespace()
    container = {"name": "app", "image": "example.invalid/app:1"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app", "namespace": namespace}, "spec": {"containers": [container]}}

    apiserver.apply(pod | {"status": {"phase": "Running"}})

    assert apiserver.get("pod", "app", namespace)["status"]["phase"] == "Running"


def test_a_service_account_has_no_rights_of_its_own(apiserver: ApiServer) -> None:
    namespace = apiserver.namespace()
    kubeconfig = apiserver.kubeconfig_for(f"{namespace}/reader")

    with pytest.raises(KubectlError, match="Forbidden"):
        apiserver.kubectl("get", "pods", "-n", namespace, kubeconfig=kubeconfig)

    apiserver.kubectl("create", "role", "reader", "--verb=list", "--resource=pods", "-n", namespace)
    apiserver.kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:reader", "-n", namespace)

    def may_list() -> bool:
        return apiserver.kubectl("auth", "can-i", "list", "pods", "-n", namespace, kubeconfig=kubeconfig).strip() == "yes"

    eventually("the binding counts", may_list)
    with pytest.raises(KubectlError, match="Forbidden"):
        apiserver.kubectl("get", "secrets", "-n", namespace, kubeconfig=kubeconfig)
