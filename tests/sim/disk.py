"""A disk in memory that loses power on demand (`storage.files.disk` says what it may then lose).

Each file has its bytes as programs see them and those that a sync made durable; each folder has its
names in both ways. `crash` takes a random mix of the two, down to bytes:

    disk = SimulatedDisk()
    disk.fail_after(7)                 # the 7th durability operation does not return
    with pytest.raises(SimulatedCrash):
        use(disk)
    disk.crash(random.Random(seed))    # power comes back: a random half of what was not synced
    use(disk)                          # handles from before the crash are dead

Durability operations are datasync, sync_dir, rename and make_dir. Also here: `kill` (the process
dies, the page cache lives), room that runs out, a sync that fails, bits that flip.
"""

from collections.abc import Callable, Sequence
from random import Random

from hourwheel import errors
from hourwheel.formats.record_batch import Buffer
from storage.files.disk import parent_of
from tests.sim.disk_contents import BLOCK_BYTES, Folder, Inode


class SimulatedCrash(BaseException):
    """The power went. Not an Exception: no code of ours lives on to handle it."""


class SimulatedFile:
    """See `storage.files.disk.File`."""

    def __init__(self, disk: "SimulatedDisk", path: str, inode: Inode) -> None:
        self._disk = disk
        self._life = disk.life
        self._inode = inode
        self.path = path

    def pwrite(self, pieces: Sequence[Buffer], position: int) -> None:
        self._disk.check_alive(self._life)
        for piece in pieces:
            flat = memoryview(piece).nbytes == len(piece)
            errors.invariant(flat, "a piece is not a flat view of bytes")
        raw = b"".join(pieces)
        if raw:
            self._disk.take_room(self._inode, position, position + len(raw), self.path)
            self._inode.write(raw, position)

    def pread(self, length: int, position: int) -> bytes:
        self._disk.check_alive(self._life)
        return bytes(self._inode.data[position : position + length])

    def pread_many(self, lengths: Sequence[int], positions: Sequence[int]) -> list[bytes]:
        return [self.pread(size, at) for size, at in zip(lengths, positions, strict=True)]

    def pread_into(self, pieces: Sequence[memoryview], positions: Sequence[int]) -> int:
        count = 0
        for piece, at in zip(pieces, positions, strict=True):
            raw = self.pread(len(piece), at)
            piece[: len(raw)] = raw
            count += len(raw)
        return count

    def size(self) -> int:
        self._disk.check_alive(self._life)
        return len(self._inode.data)

    def truncate(self, size_bytes: int) -> None:
        self._disk.check_alive(self._life)
        self._inode.truncate(size_bytes)

    def datasync(self) -> None:
        self._disk.check_alive(self._life)
        self._disk.datasync(self._inode, self.path)

    def will_need(self, position: int, length: int) -> None:
        self._disk.check_alive(self._life)

    def close(self) -> None:
        """Files of before a crash may be closed after it."""


class SimulatedMapping:
    """See `Mapping` of the port. Storing outside what was allocated fails at the next sync."""

    def __init__(self, disk: "SimulatedDisk", path: str, inode: Inode) -> None:
        self._disk = disk
        self._life = disk.life
        self._inode = inode
        self.path = path
        self.view = inode.map()

    def allocate(self, from_bytes: int, to_bytes: int) -> None:
        self._disk.check_alive(self._life)
        self._disk.take_room(self._inode, from_bytes, to_bytes, self.path)

    def datasync(self) -> None:
        self._disk.check_alive(self._life)
        self._disk.datasync(self._inode, self.path)

    def close(self) -> None:
        """Views that are still looked at live on, as real ones do."""


class SimulatedDisk:
    """See `storage.files.disk.Disk` and the top of this file.

    Attributes:
        durability_op_count: operations so far; a run without failure tells how many `fail_after`
            can take.
        life: +1 with each crash and kill.
    """

    def __init__(self, capacity_bytes: int = 1 << 40) -> None:
        self.capacity_bytes: int = capacity_bytes
        self.durability_op_count = 0
        self.life = 0
        self._folders: dict[str, Folder] = {"": Folder()}
        self._moves: list[tuple[str, str]] = []
        """Folders that were renamed, (old, new), where that is not durable yet."""
        self._loose: set[str] = set()
        """Folders that were made, where that is not durable yet."""
        self.is_down = False
        self._fail_at: int | None = None
        self._takes_effect = False
        self._failing_syncs: set[str] = set()
        self._broken_syncs: set[str] = set()

    # --- what goes wrong

    def fail_after(self, count: int, *, takes_effect: bool = False) -> None:
        """Lose power at the `count`-th durability operation from now, before or after it acts."""
        self._fail_at = self.durability_op_count + count
        self._takes_effect = takes_effect

    def disarm(self) -> None:
        """Take back `fail_after`."""
        self._fail_at = None

    def fail_sync(self, path: str) -> None:
        """Let the next datasync or sync_dir of `path` fail. Asking again is the program's bug."""
        self._failing_syncs.add(path)

    def crash(self, rng: Random) -> None:
        """Power is lost and comes back: of what was not synced, a random part survives."""
        while self._moves and rng.random() < 0.5:
            old, new = self._moves.pop()
            self._move(new, old)
        self._moves.clear()
        for path in sorted(self._loose):
            if Random(f"{self.life} {path}").random() < 0.5:
                for lost in [
                    one for one in list(self._folders) if f"{one}/".startswith(f"{path}/")
                ]:
                    del self._folders[lost]
        self._loose.clear()
        for folder in self._folders.values():
            folder.crash(rng)
        seen: dict[int, Inode] = {}
        for folder in self._folders.values():
            for inode in folder.names.values():
                seen[id(inode)] = inode
        for inode in seen.values():
            inode.crash(rng)
        self.kill()

    def kill(self) -> None:
        """The process dies. What it wrote is in the page cache, and is seen again."""
        for folder in self._folders.values():
            for inode in folder.names.values():
                inode.unmap()
        self.life += 1
        self.is_down = False
        self._fail_at = None
        self._failing_syncs.clear()
        self._broken_syncs.clear()

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Damage one bit on the medium."""
        self._inode(path).flip_bit(position, bit)

    def damage(self, path: str, position: int, raw: bytes) -> None:
        """Damage a stretch of bytes on the medium."""
        inode = self._inode(path)
        inode.write(raw, position)
        inode.datasync()

    def inode_of(self, path: str) -> object:
        """The file itself, whatever it is called: to tell it from another of its name."""
        return self._inode(path)

    def durable(self, directory: str) -> dict[str, bytes]:
        """File name -> bytes that survive any power cut, of a folder's files whose names do."""
        folder = self._folders.get(directory)
        names = {} if folder is None else folder.durable_names
        return {name: bytes(inode.durable) for name, inode in names.items()}

    # --- for files

    def check_alive(self, life: int) -> None:
        if self.is_down:
            raise SimulatedCrash
        errors.invariant(life == self.life, "a handle from before the crash is used")

    def take_room(self, inode: Inode, from_bytes: int, to_bytes: int, path: str) -> None:
        blocks = set(range(from_bytes // BLOCK_BYTES, -(-to_bytes // BLOCK_BYTES)))
        blocks -= inode.blocks
        if len(blocks) * BLOCK_BYTES > self.free_bytes():
            raise errors.DiskFull(f"no room to write {path}", file=path)
        inode.blocks |= blocks

    def datasync(self, inode: Inode, path: str) -> None:
        inode.check_stores(path)
        self._durability_op(inode.datasync, path)

    def _durability_op(self, effect: Callable[[], None], path: str) -> None:
        self.durability_op_count += 1
        fails = self.durability_op_count == self._fail_at
        if fails and not self._takes_effect:
            self.is_down = True
            raise SimulatedCrash
        errors.invariant(path not in self._broken_syncs, "a failed sync is tried again", file=path)
        if path in self._failing_syncs:
            self._broken_syncs.add(path)
            raise errors.FsyncFailed(f"cannot make {path} durable: simulated", file=path)
        effect()
        if fails:
            self.is_down = True
            raise SimulatedCrash

    # --- the port

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        return SimulatedFile(self, path, self._inode(path, create=create))

    def map(self, path: str, size_bytes: int, *, create: bool = False) -> SimulatedMapping:
        inode = self._inode(path, create=create)
        if create and not inode.data:
            inode.truncate(size_bytes)
        if len(inode.data) != size_bytes:
            raise errors.CorruptFile(f"{path} has {len(inode.data)} bytes", file=path)
        return SimulatedMapping(self, path, inode)

    def exists(self, path: str) -> bool:
        self.check_alive(self.life)
        folder = self._folders.get(parent_of(path))
        return path in self._folders or (folder is not None and _name_of(path) in folder.names)

    def list(self, path: str) -> list[str]:
        return sorted([*self._folder(path).names, *self._folders_in(path)])

    def make_dir(self, path: str, *, is_durable: bool = True) -> None:
        if self.exists(path):
            return
        self.make_dir(parent_of(path))
        if is_durable:
            self._durability_op(lambda: self._add_folder(path), path)
        else:
            self._folders[path] = Folder()
            self._loose.add(path)

    def _add_folder(self, path: str) -> None:
        self._settle(parent_of(path))
        self._folders[path] = Folder()

    def rename(self, old: str, new: str) -> None:
        errors.invariant(parent_of(old) == parent_of(new), "renaming into another folder", old=old)
        if old in self._folders:
            self.check_alive(self.life)
            errors.invariant(not self.exists(new), "a folder in place of something", new=new)
            self._durability_op(lambda: self._move_pending(old, new), new)
            return
        self._inode(old)
        folder = self._folder(parent_of(old))
        self._durability_op(lambda: folder.rename(_name_of(old), _name_of(new)), new)

    def _move_pending(self, old: str, new: str) -> None:
        self._move(old, new)
        self._moves.append((old, new))

    def _move(self, old: str, new: str) -> None:
        for path in [one for one in list(self._folders) if one == old or one.startswith(f"{old}/")]:
            self._folders[new + path[len(old) :]] = self._folders.pop(path)
            if path in self._loose:
                self._loose.remove(path)
                self._loose.add(new + path[len(old) :])

    def _settle(self, parent: str) -> None:
        self._loose = {path for path in self._loose if parent_of(path) != parent}
        self._moves = [move for move in self._moves if parent_of(move[0]) != parent]

    def link(self, old: str, new: str) -> None:
        errors.invariant(not self.exists(new), "a second name that is taken", new=new)
        self._folder(parent_of(new)).link(_name_of(new), self._inode(old))

    def sync_dir(self, path: str) -> None:
        folder = self._folder(path)
        self._durability_op(lambda: self._sync_folder(folder, path), path)

    def _sync_folder(self, folder: Folder, path: str) -> None:
        folder.sync()
        self._settle(path)

    def remove(self, path: str) -> None:
        self.check_alive(self.life)
        if path in self._folders:
            if self.list(path):
                raise errors.DiskFailed(f"cannot remove {path}: not empty", file=path)
            del self._folders[path]
            self._loose.discard(path)
            return
        self._inode(path)
        self._folder(parent_of(path)).remove(_name_of(path))

    def free_bytes(self) -> int:
        return max(0, self.capacity_bytes - self.used_bytes(""))

    def used_bytes(self, path: str) -> int:
        self.check_alive(self.life)
        prefix = f"{path}/" if path else ""
        inodes = {
            id(inode): len(inode.blocks)
            for name, folder in self._folders.items()
            if name == path or name.startswith(prefix)
            for inode in folder.names.values()
        }
        return sum(inodes.values()) * BLOCK_BYTES

    # --- finding things

    def _folder(self, path: str) -> Folder:
        self.check_alive(self.life)
        if path not in self._folders:
            raise FileNotFoundError(path)
        return self._folders[path]

    def _folders_in(self, path: str) -> set[str]:
        names = list(self._folders)  # at once: a thread of a test may remove some meanwhile
        return {_name_of(name) for name in names if name and parent_of(name) == path}

    def _inode(self, path: str, *, create: bool = False) -> Inode:
        folder = self._folder(parent_of(path))
        name = _name_of(path)
        if name not in folder.names:
            if not create:
                raise FileNotFoundError(path)
            folder.link(name, Inode())
        return folder.names[name]


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]
