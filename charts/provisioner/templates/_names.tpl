{{- define "provisioner.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- /* Of a component: (dict "root" $ "component" "controller"). Never changed: a Deployment's selector cannot be. */ -}}
{{- define "provisioner.selector" -}}
app.kubernetes.io/name: provisioner
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- /* (dict "root" $ "image" $.Values.boot.image "suffix" "-boot") */ -}}
{{- define "provisioner.image" -}}
{{- $repository := .image.repository | default (printf "%s%s" .root.Values.image.repository .suffix) -}}
{{- if .image.digest -}}
{{ printf "%s@%s" $repository .image.digest | quote }}
{{- else -}}
{{ printf "%s:%s" $repository (.image.tag | default .root.Chart.AppVersion) | quote }}
{{- end -}}
{{- end -}}

{{- /* true, false, or auto: where the cluster knows the API. (dict "root" $ "wanted" … "api" "group/version/Kind") */ -}}
{{- define "provisioner.wanted" -}}
{{- if eq (toString .wanted) "auto" -}}
{{- if .root.Capabilities.APIVersions.Has .api }}yes{{ end -}}
{{- else if .wanted -}}
yes
{{- end -}}
{{- end -}}

{{- define "provisioner.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "provisioner.restrictedPod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}
