{{/*
The nodes' configuration, TOML. The same for all: HOURWHEEL_NODE__ID says which one a pod is. Scalars
of JSON are scalars of TOML, so a value is written as JSON.
*/}}
{{- define "hourwheel.config" -}}
{{- $name := include "hourwheel.fullname" . -}}
{{- $domain := include "hourwheel.domain" . -}}
{{- $node := dict "data_directory" "/var/lib/hourwheel/data" "listen" "0.0.0.0:7400" "metrics_listen" "0.0.0.0:7401" -}}
{{- $cluster := dict -}}
{{- if include "hourwheel.isCluster" . -}}
{{- $nodes := list -}}
{{- range $ordinal := until (int .Values.replicas) -}}
{{- $pod := printf "%s-%d" $name $ordinal -}}
{{- $host := printf "%s.%s" $pod $domain -}}
{{- $nodes = append $nodes (printf "%s=%s:7400,%s:7402,%s:7403" $pod $host $host $host) -}}
{{- end -}}
{{- $cluster = dict "nodes" (join " " $nodes) "id" (include "hourwheel.clusterId" .) "data_listen" "0.0.0.0:7402" "control_listen" "0.0.0.0:7403" "tls_certificate_file" "/etc/hourwheel/tls/node.crt" "tls_key_file" "/etc/hourwheel/tls/node.key" "tls_authority_file" "/etc/hourwheel/tls/ca.crt" -}}
{{- end -}}
{{- $sections := mergeOverwrite (deepCopy .Values.config) (dict "node" $node "cluster" $cluster) -}}
{{- $lines := list -}}
{{- range $section, $keys := $sections -}}
{{- if $keys -}}
{{- $lines = append $lines (printf "[%s]" $section) -}}
{{- range $key, $value := $keys -}}
{{- $lines = append $lines (printf "%s = %s" $key ($value | toJson)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end -}}
