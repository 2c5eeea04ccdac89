#include "import/open_file.h"

#include <ATen/core/Tensor.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <ranges>
#include <system_error>

#include "base/own_pages.h"
#include "base/parallel.h"

namespace onnxtorch {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(int error) { throw FileError(std::generic_category().message(error)); }

struct stat status_of(const Descriptor& descriptor) {
  struct stat status{};
  if (::fstat(descriptor.number(), &status) != 0) refuse(errno);
  return status;
}

void check_regular(const struct stat& status) {
  if (S_ISDIR(status.st_mode)) refuse(EISDIR);
  if (!S_ISREG(status.st_mode)) throw FileError("it is a pipe or a device, not a regular file");
}

// The flags for reading a file: without O_NONBLOCK a pipe would be waited for, without O_NOCTTY a terminal taken over.
constexpr int kRead = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

Descriptor opened(const fs::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) refuse(errno);
  check_regular(status);
  return Descriptor(::open(path.c_str(), kRead));
}

// A walk along paths, name by name.
class Walk {
 public:
  Walk() { directories_.emplace_back(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)); }

  // Gives the file that a path ends at; nothing where it ends at a directory.
  std::optional<Descriptor> go(const fs::path& path, bool refuses_links) {
    put(path);
    while (!names_.empty()) {
      const std::string name = std::move(names_.back());
      names_.pop_back();
      if (name == "/") {
        directories_.erase(directories_.begin() + 1, directories_.end());
      } else if (name == "..") {
        if (directories_.size() > 1) directories_.pop_back();
      } else if (!name.empty() && name != ".") {
        if (auto file = step(name, refuses_links)) return file;
      }
    }
    return {};
  }

  std::vector<Descriptor>& directories() { return directories_; }

 private:
  void put(const fs::path& path) {
    const std::vector<fs::path> names(path.begin(), path.end());
    for (const fs::path& name : names | std::views::reverse) names_.push_back(name.string());
  }

  std::optional<Descriptor> step(const std::string& name, bool refuses_links) {
    const int here = directories_.back().number();
    struct stat status{};
    if (::fstatat(here, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) refuse(errno);
    if (S_ISLNK(status.st_mode)) {
      if (refuses_links) throw FileError("\"" + name + "\" is a link, which the option links refuses");
      if (++links_ > kMostLinks) refuse(ELOOP);
      put(target(here, name));
      return {};
    }
    if (S_ISDIR(status.st_mode)) {
      if (directories_.size() >= kMostDirectories) refuse(ENAMETOOLONG);
      directories_.emplace_back(::openat(here, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      return {};
    }
    check_regular(status);
    if (!names_.empty()) refuse(ENOTDIR);
    return Descriptor(::openat(here, name.c_str(), kRead | O_NOFOLLOW));
  }

  static fs::path target(int directory, const std::string& link) {
    std::array<char, PATH_MAX> text;
    const ssize_t length = ::readlinkat(directory, link.c_str(), text.data(), text.size());
    if (length < 0) refuse(errno);
    if (length == 0 || length == std::ssize(text)) refuse(ENAMETOOLONG);
    return std::string(text.data(), static_cast<size_t>(length));
  }

  static constexpr int kMostLinks = 40;  // as many links as the system follows
  static constexpr size_t kMostDirectories = 256;

  std::vector<Descriptor> directories_;  // from the root to where the walk is
  std::vector<std::string> names_;       // the names still to go, the next one last
  int links_ = 0;
};

}  // namespace

Descriptor::Descriptor(int number) : number_(number) {
  if (number_ < 0) refuse(errno);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

Descriptor::Identity Descriptor::identity() const {
  const struct stat status = status_of(*this);
  return {status.st_dev, status.st_ino};
}

OpenFile::OpenFile(const fs::path& path) : OpenFile(opened(path)) {}

OpenFile::OpenFile(Descriptor descriptor) : descriptor_(std::move(descriptor)) {
  check_regular(status_of(descriptor_));
}

int64_t OpenFile::size() const { return status_of(descriptor_).st_size; }

std::string OpenFile::version() const {
  const struct stat status = status_of(descriptor_);
  std::string version;
  for (const auto part :
       {static_cast<int64_t>(status.st_dev), static_cast<int64_t>(status.st_ino), static_cast<int64_t>(status.st_size),
        static_cast<int64_t>(status.st_mtim.tv_sec), static_cast<int64_t>(status.st_mtim.tv_nsec)}) {
    version += std::to_string(part) + " ";
  }
  return version;
}

bool OpenFile::has_other_links() const { return status_of(descriptor_).st_nlink > 1; }

int64_t OpenFile::read_some(int64_t offset, int64_t most, char* to) const {
  int64_t done = 0;
  while (done < most) {
    const ssize_t count = ::pread(descriptor_.number(), to + done, static_cast<size_t>(most - done), offset + done);
    if (count < 0 && errno != EINTR) refuse(errno);
    if (count == 0) break;
    done += std::max<ssize_t>(count, 0);
  }
  return done;
}

void OpenFile::read(int64_t offset, int64_t length, char* to) const {
  constexpr int64_t kPart = 1 << 23;  // bytes
  parallel_for((length + kPart - 1) / kPart, kPart / static_cast<int64_t>(sizeof(float)),
               [&](int64_t begin, int64_t end) {
                 const int64_t start = begin * kPart, size = std::min(end * kPart, length) - start;
                 if (const int64_t count = read_some(offset + start, size, to + start); count < size) {
                   throw FileError("it ends at " + std::to_string(offset + start + count) + ", and was longer before");
                 }
               });
}

Bytes OpenFile::mapped() const {
  const auto size = static_cast<size_t>(this->size());
  if (size == 0) return {};
  // No swap is set aside for copies that nobody may ever make.
  void* const start =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor_.number(), 0);
  if (start == MAP_FAILED) refuse(errno);
  std::shared_ptr<const void> owner(start, [size](void* p) { ::munmap(p, size); });
  return {{static_cast<const char*>(start), size}, std::move(owner)};
}

bool LocatedFile::is_below(const Descriptor::Identity& other) const {
  return std::ranges::any_of(above, [&](const Descriptor& one) { return one.identity() == other; });
}

LocatedFile located(const fs::path& directory, const fs::path& location, bool refuses_links) {
  Walk walk;
  if (walk.go(directory, false)) refuse(ENOTDIR);
  const Descriptor::Identity base = walk.directories().back().identity();
  auto file = walk.go(location, refuses_links);
  if (!file) refuse(EISDIR);
  OpenFile open(*std::move(file));
  if (refuses_links && open.has_other_links()) {
    throw FileError("it has other names (hard links), which the option links refuses");
  }
  return {std::move(open), std::move(walk.directories()), base};
}

void FilePlaces::check_version(const OpenFile& file) const {
  const std::lock_guard lock(mutex_);
  const std::string version = file.version();
  if (version_.empty()) version_ = version;
  if (version != version_)
    throw FileError("it has changed since it was loaded; it must stay as it is while the model lives");
}

Bytes FilePlaces::read(const OpenFile& file, int64_t offset, int64_t length) const {
  const auto bytes = [&](std::shared_ptr<const void> owner) {
    const std::string_view view(static_cast<const char*>(owner.get()), static_cast<size_t>(length));
    return Bytes{view, std::move(owner)};
  };
  check_version(file);
  if (auto owner = in_memory({offset, length})) return bytes(std::move(owner));
  const auto memory = std::make_shared<const at::Tensor>(pages_for(file, length));
  file.read(offset, length, static_cast<char*>(memory->data_ptr()));
  check_version(file);
  return bytes(in_memory({offset, length}, {memory, memory->data_ptr()}));
}

at::Tensor FilePlaces::pages_for(const OpenFile& file, int64_t length) const {
  const std::lock_guard lock(mutex_);
  if (!pages_) pages_ = std::make_unique<HugePages>(file.size());
  return pages_->take(length);
}

Bytes FilePlaces::mapped(const OpenFile& file) const {
  check_version(file);
  const std::lock_guard lock(mutex_);
  if (!mapped_) mapped_ = file.mapped();
  return *mapped_;
}

// Gives the bytes of a range of the file that are in memory; else notes and gives those that were read, if any.
std::shared_ptr<const void> FilePlaces::in_memory(const FileRange& range, std::shared_ptr<const void> read) const {
  const std::lock_guard lock(mutex_);
  auto& known = in_memory_[range];
  if (auto owner = known.lock()) return owner;
  known = read;
  return read;
}

}  // namespace onnxtorch
