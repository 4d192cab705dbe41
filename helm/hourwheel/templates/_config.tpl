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
{{- $cluster = dict "nodes" (join " " $nodes) "id" (include "hourwheel.clusterId" .) "data_listen" "0.0.0.0:7402" "control_listen" "0.0.0.0:7403" "tls_authority_file" "/etc/hourwheel/tls/ca.crt" -}}
{{- if .Values.tls.isolateKeys -}}
{{- $_ := set $cluster "tls_certificate_file" "/etc/hourwheel/tls/node.crt" -}}
{{- $_ := set $cluster "tls_key_file" "/etc/hourwheel/tls/node.key" -}}
{{- end -}}
{{- end -}}
{{- $tls := dict -}}
{{- if .Values.clientTls.enabled -}}
{{- $tls = dict "certificate_file" "/etc/hourwheel/client-tls/tls.crt" "key_file" "/etc/hourwheel/client-tls/tls.key" "authority_file" "/etc/hourwheel/client-tls/ca.crt" -}}
{{- if .Values.clientTls.clientAuthoritySecret -}}
{{- $_ := set $tls "client_certificates" "required" -}}
{{- $_ := set $tls "client_authority_file" "/etc/hourwheel/client-authority/ca.crt" -}}
{{- end -}}
{{- end -}}
{{- $access := dict -}}
{{- $authentication := dict -}}
{{- if .Values.access.enabled -}}
{{- $access = dict "is_on" true "administrators" (join " " .Values.access.administrators) -}}
{{- if .Values.access.existingSecret -}}
{{- $_ := set $authentication "users_file" "/etc/hourwheel/users/users" -}}
{{- end -}}
{{- if include "hourwheel.hasTokens" . -}}
{{- $_ := set $authentication "token_keys_file" "/etc/hourwheel/token-keys/keys.json" -}}
{{- end -}}
{{- end -}}
{{- $ours := dict "node" $node "cluster" $cluster "tls" $tls "access" $access "authentication" $authentication -}}
{{- $sections := mergeOverwrite (deepCopy .Values.config) $ours -}}
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
