#include "libcore/comm/nccl_comm.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/comm/cuts.h"
#include "libcore/comm/nccl_backend.h"
#include "libcore/comm/nccl_channel.h"
#include "libcore/comm/nccl_events.h"
#include "libcore/comm/nccl_family.h"
#include "libcore/comm/nccl_staging.h"
#include "libcore/comm/polled_wait.h"

namespace rw {
namespace {

// A receive holds its CTAs for as long as it waits for its message: up to 16 on NVLink, from 1 MiB on, which kernels
// then lack. NCCL has as many channels for messages between two ranks as it has CTAs (ncclTopoComputeP2pChannels() in
// NCCL 2.28: "honor comm->max/minCTAs for p2pnChannels").
constexpr int kEdgeCtas = 4;

class NcclComm final : public Comm {
 public:
  NcclComm(Comm& host, Device& device, std::shared_ptr<NcclFamily> family)
      : host_(host), device_(device), family_(std::move(family)), stalls_(device.stream().native) {
    CHECK(device.memory() != nullptr, "%s computes in the host's memory: the host's communicator serves",
          device.name().c_str());
    timeout_s_ = host.timeout_s();
    if (size() > 1) connect();
    family_->enter(&host_);
  }
  NcclComm(std::unique_ptr<Comm> host, Device& device, std::shared_ptr<NcclFamily> family)
      : NcclComm(*host, device, std::move(family)) {
    owned_host_ = std::move(host);
  }
  ~NcclComm() override {
    edges_.clear();
    channel_.reset();
    family_->leave(&host_);
  }

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  std::string name() const override { return nccl::backend_name(); }
  std::vector<std::string> hosts() const override { return host_.hosts(); }
  std::vector<Placement> places() const override { return host_.places(); }
  int64_t mapped_bytes() const override { return host_.mapped_bytes(); }

  SharedBuffer allocate(int64_t bytes) override {
    CHECK(bytes >= 0, "allocate %lld bytes", static_cast<long long>(bytes));
    family_->check();
    const int64_t asked = std::max<int64_t>(bytes, 1);
    std::shared_ptr<void> owner;
    if (channel_ != nullptr)
      owner = NcclChannel::allocate(channel_, asked, [this](bool mine) { return on_all_ranks(mine); });
    if (owner == nullptr) owner = plain_memory(asked);
    if (owner == nullptr)
      fail(ErrorKind::runtime,
           "out of memory on {}: a communicator asked for {}, {} are available; use a smaller "
           "model, --micro-batch or --seq-len",
           device_.name(), format_bytes(static_cast<double>(bytes)),
           format_bytes(static_cast<double>(device_.memory()->free_bytes())));
    void* data = owner.get();
    return {data, bytes, std::move(owner)};
  }

  Request all_reduce_start(void* data, int64_t n, DType t, ReduceOp op) override {
    CHECK(n >= 0, "all_reduce of %lld elements", static_cast<long long>(n));
    check_reducible("all_reduce", t, op);
    if (!on_device(data, n)) return on_host(host().all_reduce_start(data, n, t, op));
    if (size() == 1) return {};
    return in_channel(channel(), channel().all_reduce(data, n, t, op));
  }
  Request reduce_scatter_start(void* data, Cuts cuts, DType t) override {
    check_cuts(cuts, size());
    check_reducible("reduce_scatter", t, ReduceOp::sum);
    std::byte* all = first_dealt(data, cuts, t);
    if (!on_device(all, dealt_out(cuts))) return on_host(host().reduce_scatter_start(data, cuts, t));
    if (size() == 1) return {};
    return in_channel(channel(), channel().reduce_scatter(all, cuts, t));
  }
  Request all_gather_start(const void* part, void* data, Cuts cuts, DType t) override {
    check_cuts(cuts, size());
    std::byte* all = first_dealt(data, cuts, t);
    if (!on_device(all, dealt_out(cuts))) return on_host(host().all_gather_start(part, data, cuts, t));
    if (size() == 1) {
      copy_on_device(all, part, dealt_out(cuts) * dtype_bytes(t), device_.stream().native);
      return {};
    }
    return in_channel(channel(), channel().all_gather(part, all, cuts, t));
  }

  Request send_start(const void* data, int64_t bytes, int peer, int tag) override {
    check_message_ends("send", bytes, peer, tag);
    if (!on_device(data, bytes)) return on_host(host().send_start(data, bytes, peer, tag));
    if (NcclChannel* edge = find_edge({rank(), peer})) return in_channel(*edge, edge->send(data, bytes, 1), true);
    const NcclStaging::Piece piece = staging().fill(data, bytes);
    return open({.host = host().send_start(piece.data, bytes, peer, tag), .piece = piece}, true);
  }
  Request recv_start(void* data, int64_t bytes, int peer, int tag) override {
    check_message_ends("recv", bytes, peer, tag);
    if (!on_device(data, bytes)) return on_host(host().recv_start(data, bytes, peer, tag));
    if (NcclChannel* edge = find_edge({peer, rank()})) return in_channel(*edge, edge->recv(data, bytes, 0), true);
    const NcclStaging::Piece piece = staging().take(bytes);
    return open({.host = host().recv_start(piece.data, bytes, peer, tag), .piece = piece, .to = data, .bytes = bytes},
                true);
  }

  void prepare_messages(std::span<const MessageEdge> edges) override {
    if (size() == 1) return;
    const std::set<MessageEdge> sorted(edges.begin(), edges.end());
    barrier();  // a peer may still need this rank's progress
    for (const MessageEdge& edge : sorted) {
      CHECK(edge.from >= 0 && edge.from < size() && edge.to >= 0 && edge.to < size(),
            "messages from rank %d to %d of %d", edge.from, edge.to, size());
      if (edge.from == edge.to || known_edges_.contains(edge)) continue;
      known_edges_.insert(edge);
      const bool mine = edge.from == rank() || edge.to == rank();
      nccl::lend_host(host_, mine ? 0 : 1 + rank(), edge.from == rank() ? 0 : 1);
      std::shared_ptr<NcclChannel> channel = make_channel({edge.from, edge.to}, std::ssize(known_edges_));
      if (mine) edges_[edge] = std::move(channel);
    }
    // The first message over an edge waits for the peer, whatever its start promises: it passes here.
    const std::shared_ptr<void> word = plain_memory(1);
    if (word == nullptr) fail(ErrorKind::runtime, "out of memory on {}: a word for a message", device_.name());
    for (const auto& [edge, channel] : edges_) {
      channel->wait_on_host(edge.from == rank() ? channel->send(word.get(), 1, 1) : channel->recv(word.get(), 1, 0));
    }
  }

  void progress() override {
    family_->check();
    host_.progress();
    nccl::move_streams();
  }
  void look_for_dead_peers() override { host_.look_for_dead_peers(); }

  bool done(Request r) override {
    family_->check();
    const auto at = find(r);
    if (at == open_.end()) return true;
    if (at->second.channel != nullptr ? !at->second.channel->done(at->second.number) : !host_.done(at->second.host))
      return false;
    close(at);
    return true;
  }
  void wait(Request r) override {
    family_->check();
    const auto at = find(r);
    if (at == open_.end()) return;
    if (NcclChannel* channel = at->second.channel) {
      stalls_.before();
      channel->join(at->second.number);
      stalls_.after();
      prune_joined();
      joined_.push_back({.id = r.id, .channel = channel, .number = at->second.number});
    } else {
      wait_for_host(at->second.host);
    }
    close(at);
  }
  bool wait_blocks(Request r) override {
    const auto at = open_.find(r.id);
    return at != open_.end() && at->second.channel == nullptr;
  }
  bool device_did(Request r) override {
    for (const Joined& j : joined_)
      if (j.id == r.id) return j.channel->did(j.number);
    return true;
  }
  double take_stalled_s() override {
    family_->check();
    return stalls_.take();
  }
  double take_device_s() override {
    double seconds = channel_ != nullptr ? channel_->take_seconds() : 0;
    for (const auto& [edge, channel] : edges_)
      if (channel != nullptr) seconds += channel->take_seconds();
    return seconds;
  }

  void replay(const std::function<void()>& replay) override {
    if (size() == 1) return replay();
    channel().replay(replay);
  }

  void broadcast(void* data, int64_t bytes, int root) override {
    CHECK(root >= 0 && root < size() && bytes >= 0, "broadcast of %lld bytes from rank %d of %d",
          static_cast<long long>(bytes), root, size());
    if (on_device(data, bytes)) {
      if (size() > 1) wait(in_channel(channel(), channel().broadcast(data, bytes, root)));
      return;
    }
    // Streams must go on while the host waits, which its own broadcast knows nothing of.
    std::vector<int64_t> cuts(static_cast<size_t>(size()) + 1, 0);
    std::fill(cuts.begin() + root + 1, cuts.end(), bytes);
    wait(on_host(host().all_gather_start(data, data, cuts, DType::u8)));
  }
  void barrier() override {
    family_->check();
    int64_t arrived = 1;
    wait(on_host(host().all_reduce_start(&arrived, 1, DType::i64, ReduceOp::sum)));
  }
  std::unique_ptr<Comm> split(int color, int key) override {
    barrier();  // as in prepare_messages
    return std::make_unique<NcclComm>(host().split(color, key), device_, family_);
  }

 private:
  // An operation under way: of a channel, or of the host's communicator, there with a piece of page-locked memory when
  // the message is the device's.
  struct Open {
    NcclChannel* channel = nullptr;
    int64_t number = 0;  // in the channel
    Request host = {};
    NcclStaging::Piece piece = {};
    void* to = nullptr;  // of a receive
    int64_t bytes = 0;
  };
  struct Joined {
    int64_t id;
    NcclChannel* channel;
    int64_t number;
  };
  using OpenMap = std::map<int64_t, Open>;

  // The host's communicator and the channel with this one's timeout: set_timeout() is not virtual.
  Comm& host() {
    family_->check();
    host_.set_timeout(timeout_s_);
    return host_;
  }
  NcclChannel& channel() {
    channel_->set_timeout(timeout_s_);
    return *channel_;
  }
  NcclStaging& staging() {
    if (staging_ == nullptr) staging_ = std::make_unique<NcclStaging>(*device_.memory(), device_.stream().native);
    return *staging_;
  }
  NcclChannel* find_edge(MessageEdge edge) {
    const auto at = edges_.find(edge);
    if (at == edges_.end()) return nullptr;
    at->second->set_timeout(timeout_s_);
    return at->second.get();
  }

  std::shared_ptr<void> plain_memory(int64_t bytes) const {
    DeviceMemory* memory = device_.memory();
    return {memory->allocate(bytes), [memory](void* block) {
              if (block != nullptr) memory->release(block);
            }};
  }
  bool on_all_ranks(bool mine) {
    int64_t all = mine ? 1 : 0;
    wait(on_host(host().all_reduce_start(&all, 1, DType::i64, ReduceOp::min)));
    return all != 0;
  }

  static bool on_device(const void* data, int64_t n) { return n > 0 && is_device_memory(data); }
  void check_message_ends(const char* what, int64_t bytes, int peer, int tag) const {
    CHECK(peer >= 0 && peer < size() && bytes >= 0 && tag >= 0, "%s %lld bytes, rank %d of %d, tag %d", what,
          static_cast<long long>(bytes), peer, size(), tag);
  }

  void connect() {
    roll_call_ = std::make_shared<RollCall>(host_.split(0, rank()));
    std::vector<int> everyone(static_cast<size_t>(size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    nccl::lend_host(host_, 0, rank());
    channel_ = make_channel(everyone, 0);
  }

  // Collective over host_: the first member names the communicator. Null on ranks that are not members.
  std::shared_ptr<NcclChannel> make_channel(const std::vector<int>& members, int64_t number) {
    NcclId id{};
    if (rank() == members[0]) id = make_nccl_id();
    host_.broadcast(id.data(), std::ssize(id), members[0]);
    const auto me = std::find(members.begin(), members.end(), rank());
    if (me == members.end()) return nullptr;
    return std::make_shared<NcclChannel>(NcclChannelConfig{.id = id,
                                                           .rank = static_cast<int>(me - members.begin()),
                                                           .members = members,
                                                           .number = number,
                                                           .family = family_,
                                                           .roll_call = roll_call_,
                                                           .compute = device_.stream().native,
                                                           .timeout_s = timeout_s_,
                                                           .max_ctas = number > 0 ? kEdgeCtas : 0});
  }

  Request open(const Open& operation, bool is_mail) {
    open_[next_] = operation;
    return {.id = next_++, .mail = is_mail};
  }
  Request in_channel(NcclChannel& channel, int64_t number, bool is_mail = false) {
    return open({.channel = &channel, .number = number}, is_mail);
  }
  Request on_host(Request request) { return open({.host = request}, request.mail); }
  OpenMap::iterator find(Request r) {
    CHECK(r.id < next_, "request %lld was not started here", static_cast<long long>(r.id));
    return open_.find(r.id);
  }
  void close(OpenMap::iterator at) {
    const Open& o = at->second;
    if (o.to != nullptr) staging().empty(o.piece, o.to, o.bytes);
    else if (o.piece.data != nullptr) staging().give(o.piece);
    open_.erase(at);
  }
  void prune_joined() {
    while (!joined_.empty() && joined_.front().channel->did(joined_.front().number)) joined_.pop_front();
  }
  void wait_for_host(Request request) {
    wait_while_moving(host(), request, [this] { progress(); });
    host_.wait(request);
  }

  std::unique_ptr<Comm> owned_host_;
  Comm& host_;
  Device& device_;
  std::shared_ptr<NcclFamily> family_;
  std::shared_ptr<RollCall> roll_call_;   // with peers
  std::shared_ptr<NcclChannel> channel_;  // with peers
  std::set<MessageEdge> known_edges_;     // of all ranks
  std::map<MessageEdge, std::shared_ptr<NcclChannel>> edges_;
  std::unique_ptr<NcclStaging> staging_;
  StallClock stalls_;
  OpenMap open_;
  std::deque<Joined> joined_;
  int64_t next_ = 0;
};

}  // namespace

std::unique_ptr<Comm> make_nccl_comm(Comm& host, Device& device) {
  return std::make_unique<NcclComm>(host, device, std::make_shared<NcclFamily>());
}

std::unique_ptr<Comm> device_comm(Comm& host, Device& device) {
  return device.memory() == nullptr ? nullptr : make_nccl_comm(host, device);
}

}  // namespace rw
