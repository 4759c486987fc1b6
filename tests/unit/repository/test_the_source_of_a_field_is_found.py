"""Which file decides a field: the plain manifest, the overlay before the base, the value behind a chart's template; else a refusal."""

import textwrap
from pathlib import Path

import pytest

from suture.errors import EditRefused, SutureError
from suture.remediation.incident import Change
from suture.remediation.source.locating import locate
from suture.remediation.source.proposing import propose_files

IMAGE = "spec.template.spec.containers[name=app].image"
IMAGE_NAME = "registry.example.com/shop/checkout"
MEMORY = "spec.template.spec.containers[name=app].resources.limits.memory"


def change(
    path: str, value: object = "new", *, target: str = "Deployment/prod/web", operation: str = "set", before: object = None
) -> Change:
    return Change(object=target, operation=operation, path=path, value=value, before=before)


def repository(**files: str) -> dict[str, bytes]:
    return {name.replace("__", "/") + ".yaml": textwrap.dedent(text).encode() for name, text in files.items()}


def deployment(namespace: str = "", name: str = "web", image: str = "web") -> str:
    place = f", namespace: {namespace}" if namespace else ""
    return (
        f"apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}{place}}}\nspec:\n  replicas: 1\n  template:\n    spec:\n"
        f"      containers:\n      - name: app\n        image: {image}\n        resources:\n          limits:\n            memory: 64Mi\n"
    )


def changed(files: dict[str, bytes], *changes: Change) -> dict[str, str]:
    """The lines that came, by file."""
    found = propose_files(files, changes)
    return {f.path: "\n".join(x for x in f.after.decode().splitlines() if x not in f.before.decode().splitlines()) for f in found}


def test_the_exact_namespace_is_preferred_to_a_file_without_one() -> None:
    files = repository(a=deployment("prod"), b=deployment("dev"), c=deployment())

    assert locate(files, change(IMAGE)) == "a.yaml"
    assert locate(files, change(IMAGE, target="Deployment/other/web")) == "c.yaml"


def test_two_files_for_one_object_are_refused_by_name() -> None:
    with pytest.raises(EditRefused, match=r"a\.yaml, b\.yaml"):
        locate(repository(a=deployment(), b=deployment()), change(IMAGE))


def test_an_object_that_no_file_defines_is_refused_and_what_cannot_be_read_is_named() -> None:
    files = repository(a=deployment(name="other"), broken="kind: Deployment\nname: web\n  x: [")

    with pytest.raises(EditRefused, match=r"No file .* Deployment/prod/web\. broken\.yaml may, but: Line 3"):
        locate(files, change(IMAGE))


def test_all_changes_are_made_or_none() -> None:
    files = repository(a=deployment("prod"))

    assert changed(files, change(IMAGE), change(MEMORY, "1Gi")) == {"a.yaml": "        image: new\n            memory: 1Gi"}
    with pytest.raises(EditRefused, match=r"a\.yaml: .*not \"2Gi\""):
        propose_files(files, [change(IMAGE), change(MEMORY, "1Gi", before="2Gi")])


def test_what_the_repository_holds_already_is_said_so() -> None:
    with pytest.raises(EditRefused, match="holds this already"):
        propose_files(repository(a=deployment("prod")), [change(MEMORY, "64Mi")])


OVERLAYS = {
    "base__kustomization": "resources: [web.yaml]\n",
    "base__web": deployment(),
    "prod__kustomization": "namespace: prod\nresources: [../base]\n",
}


def overlays(**more: str) -> dict[str, bytes]:
    return repository(**{**OVERLAYS, **more})


def test_an_overlay_s_namespace_leads_to_the_base_that_it_alone_uses() -> None:
    assert changed(overlays(), change(MEMORY, "1Gi")) == {"base/web.yaml": "            memory: 1Gi"}


def test_a_base_that_another_overlay_shares_is_not_changed() -> None:
    files = overlays(dev__kustomization="namespace: dev\nresources: [../base]\n")

    with pytest.raises(EditRefused, match=r"shared with dev/kustomization\.yaml"):
        locate(files, change(MEMORY))


def test_images_of_the_overlay_come_before_the_base() -> None:
    prod = OVERLAYS["prod__kustomization"] + 'images:\n- name: web\n  newName: reg/web\n  newTag: "1.10"  # a float else\n'
    files = overlays(prod__kustomization=prod, dev__kustomization="namespace: dev\nresources: [../base]\n")

    assert changed(files, change(IMAGE, "reg/web:1.11", before="reg/web:1.10")) == {
        "prod/kustomization.yaml": '  newTag: "1.11"  # a float else'
    }
    assert changed(files, change(IMAGE, "mirror/web:1.10")) == {"prod/kustomization.yaml": "  newName: mirror/web"}
    with pytest.raises(EditRefused, match=r"'reg/web:1\.10', not 'reg/web:1\.9'"):
        locate(files, change(IMAGE, "reg/web:1.11", before="reg/web:1.9"))


def test_a_digest_gives_way_to_a_tag() -> None:
    prod = OVERLAYS["prod__kustomization"] + "images:\n- name: web\n  newName: reg/web\n  digest: sha256:00\n"

    after = propose_files(overlays(prod__kustomization=prod), [change(IMAGE, "reg/web:2")])[0].after.decode()

    assert after.endswith('images:\n- name: web\n  newName: reg/web\n  newTag: "2"\n')


PATCH = """\
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      containers:
      - name: app
        resources: {limits: {memory: 96Mi}}  # prod
"""


def test_a_patch_file_that_sets_the_field_comes_before_the_base() -> None:
    files = overlays(prod__kustomization=OVERLAYS["prod__kustomization"] + "patches:\n- path: more.yaml\n", prod__more=PATCH)

    assert changed(files, change(MEMORY, "192Mi", before="96Mi")) == {
        "prod/more.yaml": "        resources: {limits: {memory: 192Mi}}  # prod"
    }
    assert locate(files, change(IMAGE)) == "base/web.yaml"


def test_a_patch_inside_a_block_scalar_is_edited_there() -> None:
    prod = OVERLAYS["prod__kustomization"] + "patches:\n# smaller\n- patch: |-\n" + textwrap.indent(PATCH, "    ")
    files = overlays(prod__kustomization=prod)

    after = propose_files(files, [change(MEMORY, "192Mi", before="96Mi")])[0].after.decode()

    assert after == prod.replace("96Mi", "192Mi")


def test_a_json_patch_of_the_field_is_refused() -> None:
    patch = """\
patches:
- target: {kind: Deployment, name: web}
  patch: |-
    - op: replace
      path: /spec/template/spec/containers/0/image
      value: x
"""
    prod = OVERLAYS["prod__kustomization"] + patch

    with pytest.raises(EditRefused, match="JSON patch"):
        locate(overlays(prod__kustomization=prod), change(IMAGE))
    assert locate(overlays(prod__kustomization=prod), change(MEMORY)) == "base/web.yaml"


def test_replicas_and_generators_of_the_overlay_are_edited() -> None:
    more = """\
namePrefix: p-
replicas:
- {name: web, count: 3}
configMapGenerator:
- name: conf
  literals:
  - A=1
  - B=2
"""
    prod = OVERLAYS["prod__kustomization"] + more
    files = overlays(prod__kustomization=prod)

    assert changed(files, change("spec.replicas", 2, target="Deployment/prod/p-web", before=3)) == {
        "prod/kustomization.yaml": "- {name: web, count: 2}"
    }
    literal = change("data.A", "9", target="ConfigMap/prod/p-conf-abcdefghij", before="1")
    assert changed(files, literal) == {"prod/kustomization.yaml": "  - A=9"}


def test_a_file_that_a_generator_takes_whole_is_the_value() -> None:
    more = "configMapGenerator:\n- name: conf\n  files: [app.yaml, other=more.yaml]\n"
    files = overlays(prod__kustomization=OVERLAYS["prod__kustomization"] + more, prod__app="a: 1\n", prod__more="b: 1\n")
    wanted = {"target": "ConfigMap/prod/conf-abcdefghij", "before": "b: 1\n"}

    assert changed(files, change("data.other", "b: 2\n", **wanted)) == {"prod/more.yaml": "b: 2"}
    assert locate(files, change('data["app.yaml"]', "a: 2\n", target="ConfigMap/prod/conf")) == "prod/app.yaml"
    with pytest.raises(EditRefused, match="changed since"):
        propose_files(files, [change("data.other", "b: 3\n", target="ConfigMap/prod/conf", before="b: 2\n")])
    with pytest.raises(EditRefused, match="No file"):
        locate(files, change("data.other", None, target="ConfigMap/prod/conf", operation="remove"))


CHART = {
    "chart__Chart": "name: shop\nversion: 1.0.0\n",
    "chart__values": "image: {repository: reg/web, tag: '1.0'}\nresources: {}\nmemory: 64Mi\n",
    "chart__templates__web": """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}-web
spec:
  {{- if .Values.replicas }}
  replicas: {{ .Values.replicas }}
  {{- end }}
  template:
    spec:
      containers:
      - name: app
        image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
        args: [{{ include "shop.args" . | quote }}]
        env:
        - name: SIZE
          value: {{ .Values.memory | quote }}
        {{- with .Values.resources }}
        resources:
          {{- toYaml . | nindent 10 }}
        {{- end }}
""",
    "envs__prod": "memory: 128Mi   # prod\n",
    "envs__dev": "memory: 96Mi\n",
}
WEB = "Deployment/prod/shop-web"


def test_a_value_is_changed_in_the_environment_whose_value_was_seen() -> None:
    path = "spec.template.spec.containers[name=app].env[name=SIZE].value"

    assert changed(repository(**CHART), change(path, "256Mi", target=WEB, before="128Mi")) == {"envs/prod.yaml": "memory: 256Mi   # prod"}
    with pytest.raises(EditRefused, match=r"cannot be told"):
        locate(repository(**CHART), change(path, "256Mi", target=WEB))


def test_a_block_of_values_and_an_image_s_tag_are_found() -> None:
    files = repository(**{k: v for k, v in CHART.items() if k != "envs__dev"})

    assert changed(files, change(MEMORY, "1Gi", target=WEB, operation="add"))["envs/prod.yaml"].splitlines() == [
        "resources:",
        "  limits:",
        "    memory: 1Gi",
    ]
    image = change(IMAGE, "reg/web:1.1", target=WEB, before="reg/web:1.0")
    assert changed(files, image) == {"chart/values.yaml": "image: {repository: reg/web, tag: '1.1'}"}


def test_what_a_chart_computes_is_refused() -> None:
    with pytest.raises(EditRefused, match=r"builds .* from .include"):
        locate(repository(**CHART), change("spec.template.spec.containers[name=app].args[0]", target=WEB))


def test_a_value_that_two_templates_read_is_refused() -> None:
    files = repository(**CHART, chart__templates__other="kind: ConfigMap\nmetadata: {name: x}\ndata: {a: {{ .Values.memory }}}\n")

    with pytest.raises(EditRefused, match=r"read by chart/templates/other\.yaml too"):
        locate(files, change("spec.template.spec.containers[name=app].env[name=SIZE].value", "1Gi", target=WEB, before="128Mi"))


def test_a_namespace_is_set_in_a_manifest_without_one_and_no_value_of_a_chart_is_moved() -> None:
    account = {"target": "ServiceAccount/default/web", "value": "ops"}
    plain = repository(a="kind: ServiceAccount\nmetadata:\n  name: web\n")
    chart = {"chart__Chart": "name: shop\n", "chart__values": "space: default\n"}
    chart["chart__templates__web"] = "kind: ServiceAccount\nmetadata:\n  name: web\n  namespace: {{ .Values.space }}\n"

    assert changed(plain, change("metadata.namespace", **account)) == {"a.yaml": "  namespace: ops"}
    with pytest.raises(EditRefused, match="identifies the object"):
        locate(repository(**chart), change("metadata.namespace", **account))


def test_values_that_are_set_elsewhere_are_refused() -> None:
    path = "spec.template.spec.containers[name=app].env[name=SIZE].value"
    release = "kind: HelmRelease\nmetadata: {name: shop}\nspec: {chart: {spec: {chart: ./chart}}, values: {memory: 1Gi}}\n"
    with pytest.raises(EditRefused, match=r"release\.yaml deploys the chart"):
        locate(repository(**CHART, release=release), change(path, "256Mi", target=WEB, before="128Mi"))

    inner = {name.replace("chart__", "umbrella__charts__shop__"): text for name, text in CHART.items()}
    with pytest.raises(EditRefused, match="part of the chart umbrella"):
        locate(repository(**inner, umbrella__Chart="name: umbrella\n"), change(path, "256Mi", target=WEB, before="128Mi"))


def test_a_patch_is_neither_removed_nor_entered_by_place() -> None:
    files = overlays(prod__kustomization=OVERLAYS["prod__kustomization"] + "patches:\n- path: more.yaml\n", prod__more=PATCH)

    with pytest.raises(EditRefused, match="the base's value would show"):
        locate(files, change(MEMORY, None, operation="remove"))
    with pytest.raises(EditRefused, match="not by its place"):
        locate(files, change(MEMORY.replace("[name=app]", "[0]"), "1Gi"))


@pytest.mark.parametrize("reference", ["../../../etc/passwd.yaml", "https://example.com/x?ref=main", "/abs.yaml", "../prod"])
def test_a_reference_out_of_the_repository_leads_nowhere(reference: str) -> None:
    files = overlays(prod__kustomization=f"namespace: prod\nresources: ['{reference}']\n")

    with pytest.raises(SutureError, match="No file"):
        locate(files, change(IMAGE, target="Deployment/prod/nobody"))


def test_the_fixture_s_block_scalar_is_edited_with_its_comments_kept() -> None:
    kustomization = (Path(__file__).parents[2] / "cases" / "manifests" / "05-kustomization-patches-images.yaml").read_bytes()
    files = {"env/dev/kustomization.yaml": kustomization, "base/kustomization.yaml": b"resources: [checkout.yaml]\n"}
    files["base/checkout.yaml"] = deployment(name="checkout", image="registry.example.com/shop/checkout").encode()
    target = "Deployment/shop-dev/dev-checkout"

    made = propose_files(files, [change(MEMORY, "192Mi", target=target, before="96Mi"), change(IMAGE, IMAGE_NAME + ":1.11", target=target)])

    assert [(file.path, file.after) for file in made] == [
        ("env/dev/kustomization.yaml", kustomization.replace(b"96Mi", b"192Mi").replace(b'"1.10"', b'"1.11"'))
    ]
