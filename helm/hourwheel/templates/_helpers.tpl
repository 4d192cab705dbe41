{{/* Names are short enough for every label and host name that Kubernetes makes of them. */}}
{{- define "hourwheel.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "hourwheel.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains (include "hourwheel.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "hourwheel.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Where clients connect: host, and with the port. */}}
{{- define "hourwheel.serverName" -}}
{{ include "hourwheel.fullname" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{- define "hourwheel.address" -}}
{{ include "hourwheel.serverName" . }}:7400
{{- end -}}

{{- define "hourwheel.headless" -}}
{{ include "hourwheel.fullname" . }}-nodes
{{- end -}}

{{/* DNS domain of the pods. */}}
{{- define "hourwheel.domain" -}}
{{ include "hourwheel.headless" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{/* What stays the same as long as the release does. */}}
{{- define "hourwheel.selector" -}}
app.kubernetes.io/name: {{ include "hourwheel.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "hourwheel.nodeSelector" -}}
{{ include "hourwheel.selector" . }}
app.kubernetes.io/component: node
{{- end -}}

{{/* Labels of an object. What the chart says goes before what the values say. */}}
{{- define "hourwheel.labels" -}}
{{- $ours := merge (dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_")
  "app.kubernetes.io/version" .Chart.AppVersion
  "app.kubernetes.io/managed-by" .Release.Service
  "app.kubernetes.io/part-of" "hourwheel") (include "hourwheel.selector" . | fromYaml) -}}
{{- toYaml (merge $ours .Values.commonLabels) -}}
{{- end -}}

{{/*
Labels of an object with more of its own: of a dictionary with root, component, and labels. The
labels of pods have no version: a new chart with the same image is no reason to restart them.
*/}}
{{- define "hourwheel.labelsOf" -}}
{{- $ours := include "hourwheel.labels" .root | fromYaml -}}
{{- with .component }}{{ $_ := set $ours "app.kubernetes.io/component" . }}{{ end -}}
{{- toYaml (merge $ours (default (dict) .labels)) -}}
{{- end -}}

{{- define "hourwheel.podLabels" -}}
{{- $ours := include "hourwheel.selector" .root | fromYaml -}}
{{- $_ := set $ours "app.kubernetes.io/component" .component -}}
{{- toYaml (merge $ours (default (dict) .labels) .root.Values.commonLabels) -}}
{{- end -}}

{{/* The label of pods that may be clients, where networkPolicy.clients says nothing else. */}}
{{- define "hourwheel.clientLabel" -}}
{{ include "hourwheel.fullname" . }}-client
{{- end -}}

{{/* repository:tag, or repository@digest; of a dictionary with image and root. */}}
{{- define "hourwheel.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end -}}
{{- end -}}

{{/* Number of nodes, as an integer: Helm reads numbers as floats. */}}
{{- define "hourwheel.replicas" -}}
{{ int .Values.replicas }}
{{- end -}}

{{- define "hourwheel.isCluster" -}}
{{- if gt (int .Values.replicas) 1 }}true{{ end -}}
{{- end -}}

{{/*
The cluster's id. The number of nodes goes into it, so that nodes of an installation with another
number refuse their directories, also where nobody looked at what was installed before.
*/}}
{{- define "hourwheel.clusterId" -}}
{{- if .Values.cluster.id -}}
{{ .Values.cluster.id }}
{{- else -}}
{{- printf "%s/%s/%s" .Release.Namespace (include "hourwheel.fullname" .) (include "hourwheel.replicas" .) | sha256sum | trunc 32 -}}
{{- end -}}
{{- end -}}

{{/* The Secrets with the nodes' certificates, as sources of a projected volume. */}}
{{- define "hourwheel.tlsSources" -}}
{{- $root := . -}}
{{- $name := include "hourwheel.fullname" . -}}
{{- if eq .Values.tls.source "existing-secret" -}}
- secret:
    name: {{ .Values.tls.existingSecret }}
{{- else -}}
{{- range $ordinal := until (int .Values.replicas) }}
- secret:
    name: {{ $name }}-{{ $ordinal }}-tls
    items:
      {{- if eq $ordinal 0 }}
      - {key: ca.crt, path: ca.crt}
      {{- end }}
      - {key: tls.crt, path: {{ $name }}-{{ $ordinal }}.crt}
      - {key: tls.key, path: {{ $name }}-{{ $ordinal }}.key}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The Secret with the certificate for clients. */}}
{{- define "hourwheel.clientTlsSecret" -}}
{{ default (printf "%s-clients-tls" (include "hourwheel.fullname" .)) .Values.clientTls.existingSecret }}
{{- end -}}

{{- define "hourwheel.hasTokens" -}}
{{- if or .Values.access.tokenKeys.existingSecret .Values.access.tokenKeys.existingConfigMap }}true{{ end -}}
{{- end -}}

{{/* Whether /metrics and the probes speak TLS. */}}
{{- define "hourwheel.metricsTls" -}}
{{- if and .Values.clientTls.enabled (dig "tls" "metrics" true .Values.config) }}true{{ end -}}
{{- end -}}

{{/* Whether `helm test` has what it needs to be let in: it has no certificate of its own. */}}
{{- define "hourwheel.canTest" -}}
{{- $isKnown := or (not .Values.access.enabled) .Values.access.existingSecret -}}
{{- if and $isKnown (not .Values.clientTls.clientAuthoritySecret) }}true{{ end -}}
{{- end -}}

{{/* Where a probe asks; of a dictionary with root and path. */}}
{{- define "hourwheel.probe" -}}
{{- $scheme := ternary ", scheme: HTTPS" "" (eq (include "hourwheel.metricsTls" .root) "true") -}}
{path: {{ .path }}, port: metrics{{ $scheme }}}
{{- end -}}

{{/* Volumes of a node for clients' TLS and access control: folders, so that nodes see changes. */}}
{{- define "hourwheel.secureVolumes" -}}
{{- if .Values.clientTls.enabled }}
- name: client-tls
  secret:
    secretName: {{ include "hourwheel.clientTlsSecret" . }}
    defaultMode: 0440
{{- with .Values.clientTls.clientAuthoritySecret }}
- name: client-authority
  secret:
    secretName: {{ . }}
    items: [{key: ca.crt, path: ca.crt}]
{{- end }}
{{- end }}
{{- if .Values.access.enabled }}
{{- with .Values.access.existingSecret }}
- name: users
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items: [{key: users, path: users}]
{{- end }}
{{- if include "hourwheel.hasTokens" . }}
- name: token-keys
  {{- with .Values.access.tokenKeys.existingSecret }}
  secret:
    secretName: {{ . }}
    items: [{key: keys.json, path: keys.json}]
  {{- end }}
  {{- with .Values.access.tokenKeys.existingConfigMap }}
  configMap:
    name: {{ . }}
    items: [{key: keys.json, path: keys.json}]
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* All pods are confined in the same way. */}}
{{- define "hourwheel.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
serviceAccountName: {{ include "hourwheel.fullname" . }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "hourwheel.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* What values must hold together and no schema can say. Refused with the reason. */}}
{{- define "hourwheel.check" -}}
{{- $replicas := int .Values.replicas -}}
{{- $name := include "hourwheel.fullname" . -}}
{{- $before := lookup "apps/v1" "StatefulSet" .Release.Namespace $name -}}
{{- if $before -}}
{{- if ne (int $before.spec.replicas) $replicas -}}
{{- fail (printf "replicas is %d, and %s has %d nodes: nodes cannot be added or taken away. Install a second release, and move to it (UPGRADING.md)." $replicas $name (int $before.spec.replicas)) -}}
{{- end -}}
{{- end -}}
{{- if gt $replicas 1 -}}
{{- if and (eq .Values.tls.source "existing-secret") (not .Values.tls.existingSecret) -}}
{{- fail "tls.source is existing-secret: name it in tls.existingSecret." -}}
{{- end -}}
{{- if and (eq .Values.tls.source "cert-manager") .Values.tls.existingSecret -}}
{{- fail "tls.existingSecret is used with tls.source existing-secret only." -}}
{{- end -}}
{{- if and (eq .Values.tls.source "cert-manager") (not (.Capabilities.APIVersions.Has "cert-manager.io/v1")) -}}
{{- fail "tls.source is cert-manager, and this cluster has no cert-manager.io/v1: install cert-manager, or set tls.source to existing-secret. Where nothing is asked of a cluster: helm template --api-versions cert-manager.io/v1." -}}
{{- end -}}
{{- $cluster := dig "cluster" (dict) .Values.config -}}
{{- if gt (int (dig "min_in_sync" 2 $cluster)) $replicas -}}
{{- fail (printf "config.cluster.min_in_sync is %d, and there are %d nodes." (int $cluster.min_in_sync) $replicas) -}}
{{- end -}}
{{- if eq (dig "log" "durability" "sync" .Values.config) "async" -}}
{{- fail "config.log.durability is async: that is for a node alone, a cluster is always durable." -}}
{{- end -}}
{{- end -}}
{{- $drain := div (int (dig "node" "drain_ms" 10000 .Values.config)) 500 -}}
{{- $needed := add (int .Values.drain.lingerSeconds) 10 $drain -}}
{{- if lt (int .Values.drain.gracePeriodSeconds) (int $needed) -}}
{{- fail (printf "drain.gracePeriodSeconds is %d: linger, hand-over and twice config.node.drain_ms take %d." (int .Values.drain.gracePeriodSeconds) (int $needed)) -}}
{{- end -}}
{{- if or .Values.monitoring.serviceMonitor.enabled .Values.monitoring.prometheusRule.enabled -}}
{{- if not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") -}}
{{- fail "monitoring.serviceMonitor and monitoring.prometheusRule need monitoring.coreos.com/v1, which this cluster has not: install the Prometheus operator. Where nothing is asked of a cluster: helm template --api-versions monitoring.coreos.com/v1." -}}
{{- end -}}
{{- end -}}
{{- $clientTls := .Values.clientTls -}}
{{- $issuer := $clientTls.certManager.issuerRef.name -}}
{{- if $clientTls.enabled -}}
{{- if not (or $clientTls.existingSecret $issuer) -}}
{{- fail "clientTls.enabled: name a Secret in clientTls.existingSecret, or an issuer in clientTls.certManager.issuerRef." -}}
{{- end -}}
{{- if and $clientTls.existingSecret $issuer -}}
{{- fail "clientTls has an existingSecret and an issuerRef: give one of them." -}}
{{- end -}}
{{- if and $issuer (not (.Capabilities.APIVersions.Has "cert-manager.io/v1")) -}}
{{- fail "clientTls.certManager.issuerRef is set, and this cluster has no cert-manager.io/v1: install cert-manager, or use clientTls.existingSecret. Where nothing is asked of a cluster: helm template --api-versions cert-manager.io/v1." -}}
{{- end -}}
{{- if and $issuer (eq $issuer .Values.tls.certManager.issuerRef.name) (eq $clientTls.certManager.issuerRef.kind .Values.tls.certManager.issuerRef.kind) -}}
{{- fail "clientTls and tls have the same issuer: who has a certificate of the nodes' issuer may be a node." -}}
{{- end -}}
{{- if .Values.jobs.bulkSchedule.enabled -}}
{{- fail "jobs.bulkSchedule connects without TLS: it does not go with clientTls.enabled." -}}
{{- end -}}
{{- else if or $clientTls.existingSecret $issuer $clientTls.clientAuthoritySecret -}}
{{- fail "clientTls has certificates, and clientTls.enabled is false." -}}
{{- end -}}
{{- if .Values.access.enabled -}}
{{- if not $clientTls.enabled -}}
{{- fail "access.enabled needs clientTls.enabled: clients send no secret in the clear." -}}
{{- end -}}
{{- if not (or .Values.access.existingSecret (include "hourwheel.hasTokens" .) $clientTls.clientAuthoritySecret) -}}
{{- fail "access.enabled: name a Secret with the first users in access.existingSecret, or keys of tokens in access.tokenKeys, or clients' authority in clientTls.clientAuthoritySecret: nobody could log in." -}}
{{- end -}}
{{- $isOpen := eq (dig "access" "metrics" true .Values.config) false -}}
{{- if not (or $isOpen (include "hourwheel.metricsTls" .)) -}}
{{- fail "config.tls.metrics is false, and access.enabled: logins for /metrics would be sent in the clear. Leave config.tls.metrics out, or set config.access.metrics to false." -}}
{{- end -}}
{{- if and .Values.monitoring.serviceMonitor.enabled (not $isOpen) (not .Values.monitoring.serviceMonitor.loginSecret) -}}
{{- fail "monitoring.serviceMonitor with access.enabled: name a Secret in monitoring.serviceMonitor.loginSecret, or set config.access.metrics to false." -}}
{{- end -}}
{{- end -}}
{{- if and .Values.access.tokenKeys.existingSecret .Values.access.tokenKeys.existingConfigMap -}}
{{- fail "access.tokenKeys has an existingSecret and an existingConfigMap: give one of them." -}}
{{- end -}}
{{- $bulk := .Values.jobs.bulkSchedule -}}
{{- if and $bulk.enabled (not (and $bulk.existingClaim $bulk.files $bulk.job)) -}}
{{- fail "jobs.bulkSchedule needs existingClaim, files and job." -}}
{{- end -}}
{{- if ge (int .Values.jobs.source.ordinal) $replicas -}}
{{- fail (printf "jobs.source.ordinal is %d: the last node is %d." (int .Values.jobs.source.ordinal) (sub $replicas 1)) -}}
{{- end -}}
{{- end -}}
