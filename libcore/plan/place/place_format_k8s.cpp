// Kubernetes: an indexed Job (batch/v1) whose pods are the nodes in use, one a host. The scheduler picks the hosts, so
// the file says what must hold of them: one pod a host, all on one leaf where the placement is, the hosts that were
// named. Ranks are in the ConfigMap by pod: a pod's name is JOB-INDEX, in the headless Service's domain.
#include <fmt/core.h>

#include <set>

#include "libcore/base/error.h"
#include "libcore/plan/place/place_format.h"

namespace rw {

std::string k8s_text(const PlaceFile& f) {
  const std::vector<UsedNode> used = used_nodes(f);
  const std::string& job = f.names.job;
  const size_t per_pod = used.front().ranks.size();
  std::set<int64_t> leaves;
  std::string rankfile, ranks;
  std::vector<size_t> pod_of(static_cast<size_t>(f.layout.ranks()));
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i].ranks.size() != per_pod)
      fail(
          ErrorKind::usage,
          "--format k8s makes pods that are alike, but this placement has {} ranks on one node and {} on another; keep "
          "devices free (--reserve) or choose a layout so that nodes are used alike",
          per_pod, used[i].ranks.size());
    for (const int64_t r : used[i].ranks) {
      pod_of[static_cast<size_t>(r)] = i;
      leaves.insert(f.placement.place(r).leaf);
    }
    ranks += fmt::format("  ranks-of-pod-{}: \"{}\"\n", i, rank_list(used[i]));
  }
  for (int64_t r = 0; r < f.layout.ranks(); ++r)
    rankfile +=
        fmt::format("    rank {}={}-{}.{} slot={}\n", r, job, pod_of[static_cast<size_t>(r)], job, slot_text(f, r));

  const std::string labels = fmt::format("app.kubernetes.io/name: {}", job);
  std::string affinity = fmt::format(
      "      affinity:\n"
      "        podAntiAffinity:\n"
      "          requiredDuringSchedulingIgnoredDuringExecution:\n"
      "          - topologyKey: kubernetes.io/hostname\n"
      "            labelSelector: {{matchLabels: {{{}}}}}\n",
      labels);
  if (used.size() > 1 && f.cluster.network.nodes_per_leaf > 0)
    affinity += leaves.size() == 1 ? fmt::format(
                                         "        podAffinity:\n"
                                         "          requiredDuringSchedulingIgnoredDuringExecution:\n"
                                         "          - topologyKey: {}\n"
                                         "            labelSelector: {{matchLabels: {{{}}}}}\n",
                                         f.names.leaf_label, labels)
                                   : fmt::format(
                                         "        podAffinity:\n"
                                         "          preferredDuringSchedulingIgnoredDuringExecution:\n"
                                         "          - weight: 100\n"
                                         "            podAffinityTerm:\n"
                                         "              topologyKey: {}\n"
                                         "              labelSelector: {{matchLabels: {{{}}}}}\n",
                                         f.names.leaf_label, labels);
  if (!f.nodes.empty()) {
    affinity +=
        "        nodeAffinity:\n"
        "          requiredDuringSchedulingIgnoredDuringExecution:\n"
        "            nodeSelectorTerms:\n"
        "            - matchExpressions:\n"
        "              - key: kubernetes.io/hostname\n"
        "                operator: In\n"
        "                values:\n";
    for (const UsedNode& n : used) affinity += fmt::format("                - \"{}\"\n", n.host);
  }
  // Devices with several compute units are GPUs; a processor's cores are for the cluster's owner to grant.
  const bool gpus = f.cluster.device_of(node_type(f, used.front().node)).compute_units > 1;
  const std::string resources =
      gpus ? fmt::format("        resources: {{limits: {{nvidia.com/gpu: {}}}}}\n", per_pod) : "";
  return fmt::format(
      "apiVersion: v1\n"
      "kind: Service\n"
      "metadata: {{name: {0}}}\n"
      "spec:\n"
      "  clusterIP: None\n"
      "  selector: {{{1}}}\n"
      "---\n"
      "apiVersion: v1\n"
      "kind: ConfigMap\n"
      "metadata: {{name: {0}-ranks}}\n"
      "data:\n"
      "{2}"
      "  rankfile: |\n"
      "{3}"
      "---\n"
      "apiVersion: batch/v1\n"
      "kind: Job\n"
      "metadata: {{name: {0}}}\n"
      "spec:\n"
      "  completionMode: Indexed\n"
      "  completions: {4}\n"
      "  parallelism: {4}\n"
      "  backoffLimit: 0\n"
      "  template:\n"
      "    metadata:\n"
      "      labels: {{{1}}}\n"
      "    spec:\n"
      "      subdomain: {0}\n"
      "      restartPolicy: Never\n"
      "{5}"
      "      containers:\n"
      "      - name: {0}\n"
      "        image: \"{6}\"\n"
      "{7}"
      "        volumeMounts:\n"
      "        - {{name: ranks, mountPath: /etc/{0}}}\n"
      "      volumes:\n"
      "      - name: ranks\n"
      "        configMap: {{name: {0}-ranks}}\n",
      job, labels, ranks, rankfile, used.size(), affinity, f.names.image, resources);
}

}  // namespace rw
