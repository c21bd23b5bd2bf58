// The places at which saves and prunings of histories_test.cpp fail: rules for faults (faults.hpp).
#pragma once

namespace cairn::test {

inline constexpr const char* kFailures[] = {"commit.begin",
                                            "commit.carry",
                                            "commit.blocks",
                                            "commit.manifest",
                                            "commit.sync",
                                            "commit.rename",
                                            "commit.rename.looked",
                                            "commit.replace.looked",
                                            "commit.replaced",
                                            "commit.publish",
                                            "commit.latest",
                                            "commit.latest.looked",
                                            "commit.noted",
                                            "rename:path=checkpoint-",
                                            "rename:path=latest",
                                            "rename:path=state.json",
                                            "exchange",
                                            "fsync:after=2",
                                            "write:path=cairn.json",
                                            "write:path=epoch-",
                                            "takeover.looked",
                                            "takeover.settle",
                                            "mkdir",
                                            "open:path=cairn.blocks"};

inline constexpr const char* kPruneFailures[] = {"prune.begin",
                                                 "prune.looked",
                                                 "prune.aside",
                                                 "prune.remove",
                                                 "prune.delete",
                                                 "lease.look:after=1",
                                                 "mkdir:path=checkpoint-",
                                                 "rename:path=.replaced/",
                                                 "rename:path=removed.",
                                                 "rename:path=removed.:after=1",
                                                 "fsync",
                                                 "unlink",
                                                 "unlink:after=2"};

}  // namespace cairn::test
