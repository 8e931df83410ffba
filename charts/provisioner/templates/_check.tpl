{{- /* What is wrong is refused before anything is made, with its remedy. */ -}}
{{- define "provisioner.check" -}}
{{- if ne .Release.Namespace "provisioner-system" -}}
{{- fail (printf "the namespace is %q, but accounts and policies are made for provisioner-system: add `--namespace provisioner-system --create-namespace`" .Release.Namespace) -}}
{{- end -}}
{{- if .Values.crds.check -}}
{{- include "provisioner.checkCRDs" . -}}
{{- end -}}
{{- if and (or .Values.controller.enabled .Values.boot.enabled .Values.web.enabled) (not .Values.image.repository) -}}
{{- fail "image.repository is not set: push the image that `make package` made to your registry, and name it there (none is published)" -}}
{{- end -}}
{{- if and .Values.controller.enabled (not .Values.bootURL) -}}
{{- fail "bootURL is not set: say where servers reach the boot service, such as http://10.80.0.1; or, as long as there is none, controller.enabled=false" -}}
{{- end -}}
{{- end -}}

{{- /* Helm makes CRDs once and never changes them: going back must take no field away. So new ones come first, by kubectl. */ -}}
{{- define "provisioner.checkCRDs" -}}
{{- $remedy := printf "first run `helm show crds CHART | kubectl apply --server-side --force-conflicts -f -` with this chart, of version %s" .Chart.Version -}}
{{- range $name := .Files.Lines "crds.txt" -}}
{{- $crd := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name -}}
{{- if $crd -}}
{{- $has := dig "metadata" "annotations" "provisioner.dev/version" "0.1.0" $crd -}}
{{- if semverCompare (printf "<%s" $.Chart.AppVersion) $has -}}
{{- fail (printf "CustomResourceDefinition %s is of version %s: %s" $name $has $remedy) -}}
{{- end -}}
{{- else if and $.Release.IsUpgrade $name (lookup "v1" "Namespace" "" "provisioner-system") -}}
{{- fail (printf "CustomResourceDefinition %s is not there: %s" $name $remedy) -}}
{{- end -}}
{{- end -}}
{{- end -}}
