// The tensors of this rank, described once for saves and loads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cairn/box.hpp"
#include "cairn/checkpoint.hpp"
#include "cairn/dtype_of.hpp"
#include "cairn/error.hpp"

namespace cairn {

/// Memory whose elements have a dtype: a std::vector, array or std::span of them. A temporary container is refused.
template <class Range>
concept TensorMemory = std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
    std::ranges::borrowed_range<Range> && HasDType<std::ranges::range_value_t<Range>>;

/// A list of tensors, or of this rank's boxes of them, from which both the sources of a save and the targets of a load
/// are made:
///
///   cairn::State state;
///   state.add("model", "wte.weight", {1000, 512}, {{first, 0}, {rows, 512}}, weight);  // a std::vector<float>
///   checkpointer.load_latest(state.targets());
///   checkpointer.save(step, state.sources());
///
/// dtype and size come from the memory; the call that saves or loads checks the size, and throws kUsage on all ranks if
/// it is not that of the boxes. Only pointers are kept: describe the state again when memory has moved, as the content
/// of a vector does when it grows. Calls are rank-local.
class State {
 public:
  /// Adds one box of a tensor of `shape`, in elements: `box` is {offset, shape} of the part that this rank has. Its
  /// elements are end to end in `memory`, row-major. Returns the entry, valid until the next add(), for all that is
  /// rarer:
  ///
  ///   state.add(...).boxes = {{...}, {...}};            // several boxes, end to end in memory
  ///   state.add(...).placements = {{offset, strides}};  // memory with gaps, such as ghost cells
  ///   state.add(...).memory = cairn::Memory::kDevice;   // with a std::span of device memory
  ///   state.add(...).optional = true;                   // a load does without a tensor that is not stored
  template <TensorMemory Range>
  Target& add(std::string section, std::string name, std::vector<std::uint64_t> shape, Box box, Range&& memory) {
    using Element = std::remove_reference_t<std::ranges::range_reference_t<Range>>;
    static_assert(sizeof(Element) * 8 == bits_of(dtype_of<Element>()), "the elements are not of the dtype's size");
    Target& target = targets_.emplace_back();
    target.section = std::move(section);
    target.name = std::move(name);
    target.dtype = dtype_of<Element>();
    target.shape = std::move(shape);
    target.boxes.push_back(std::move(box));
    target.data = const_cast<void*>(static_cast<const void*>(std::ranges::data(memory)));
    target.data_bytes = std::uint64_t{std::ranges::size(memory)} * sizeof(Element);
    if (std::is_const_v<Element> && !first_const_) first_const_ = targets_.size() - 1;
    return target;
  }

  /// Adds a whole tensor, which this rank has alone or like other ranks (a replica).
  template <TensorMemory Range>
  Target& add(std::string section, std::string name, std::vector<std::uint64_t> shape, Range&& memory) {
    Box whole{std::vector<std::uint64_t>(shape.size()), shape};
    return add(std::move(section), std::move(name), std::move(shape), std::move(whole), memory);
  }

  /// Adds memory whose C++ type does not tell its dtype, such as BF16 in a std::vector<std::uint16_t>. Its size is not
  /// checked unless Target::data_bytes is set.
  Target& add(Shard shard, void* data) { return targets_.emplace_back(Target{std::move(shard), data}); }

  [[nodiscard]] bool empty() const { return targets_.empty(); }
  [[nodiscard]] std::size_t size() const { return targets_.size(); }
  void clear() {
    targets_.clear();
    first_const_.reset();
  }

  /// The sources of a save: copies of the descriptions. Keep them where a state of very many tensors is saved often.
  [[nodiscard]] std::vector<Source> sources() const {
    std::vector<Source> sources;
    sources.reserve(targets_.size());
    for (const Target& target : targets_) sources.push_back({target, target.data, target.memory, target.data_bytes});
    return sources;
  }

  /// The targets of a load, valid until the next add() or clear(). Throws kUsage, naming the tensor, if memory that was
  /// added is const: such a state can only be saved.
  [[nodiscard]] const std::vector<Target>& targets() const {
    if (!first_const_) return targets_;
    const Target& first = targets_[*first_const_];
    throw Error(ErrorKind::kUsage, "tensor '" + first.name + "' (section " + first.section +
                                       "): its memory is const and cannot be loaded into; add memory that is not");
  }

 private:
  std::vector<Target> targets_;
  std::optional<std::size_t> first_const_;  ///< the first target whose memory is const
};

}  // namespace cairn
