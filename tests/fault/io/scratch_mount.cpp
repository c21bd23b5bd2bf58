#include "scratch_mount.hpp"

#include <sys/mount.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace cairn::test {
namespace {

bool shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

}  // namespace

ScratchMount::ScratchMount(comm::Communicator& communicator, const std::filesystem::path& directory,
                           std::uint64_t size_bytes)
    : communicator_(communicator), directory_(directory), path_(directory / "small") {
  if (communicator_.rank() == 0) {
    std::filesystem::create_directory(path_);
    const std::string options = "size=" + std::to_string(size_bytes);
    if (::mount("cairn-test", path_.c_str(), "tmpfs", 0, options.c_str()) == 0) {
      mounted_.push_back(path_);
    } else {
      problem_ = std::string("a tmpfs cannot be mounted here: ") + std::strerror(errno);
    }
  }
  communicator_.share(problem_, 0);
}

void ScratchMount::stack_lying_ext4(std::uint64_t apparent_bytes) {
  const std::filesystem::path image = path_ / "image";
  path_ = directory_ / "ext4";
  if (communicator_.rank() == 0 && problem_.empty()) {
    std::filesystem::create_directory(path_);
    const std::string size = std::to_string(apparent_bytes);
    const bool made = shell("truncate -s " + size + " '" + image.string() + "'") &&
                      shell("mkfs.ext4 -q -F -O ^has_journal -E lazy_itable_init=1 '" + image.string() + "'");
    if (made && shell("mount -o loop '" + image.string() + "' '" + path_.string() + "'")) {
      mounted_.push_back(path_);
    } else {
      problem_ = "an ext4 image cannot be made and mounted here (mkfs.ext4, mount -o loop)";
    }
  }
  communicator_.share(problem_, 0);
}

ScratchMount::~ScratchMount() {
  communicator_.barrier();
  for (; !mounted_.empty(); mounted_.pop_back()) ::umount2(mounted_.back().c_str(), MNT_DETACH);
}

}  // namespace cairn::test
