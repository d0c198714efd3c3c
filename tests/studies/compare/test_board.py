"""TensorBoard of a sweep on a disk that refuses; its content is tested with the browser."""

import errno

from studies.compare.tensorboard import SweepBoard
from tests.helpers.trial_files import make_sweep, write_trial


def test_a_disk_that_refuses_the_overview_does_not_end_the_sweep(tmp_path, capsys):
    sweep = make_sweep(tmp_path / "g", seeds=1)
    write_trial(sweep.trials[0], score=1.0)
    (sweep.out / "overlay").touch()  # A file in the place of the directory.
    board = SweepBoard(sweep)
    board.add(sweep.trials[0], [{"frame": 100, "charts/episode_return": 1.0}])
    board.finish(sweep.trials[0])
    board.close()
    assert capsys.readouterr().err.count("TensorBoard's overview of the sweep is not written") == 1


def test_a_disk_that_is_full_later_does_not_end_the_sweep(tmp_path, capsys, monkeypatch):
    def full(*arguments, **settings):
        raise OSError(errno.ENOSPC, "No space left on device")

    sweep = make_sweep(tmp_path / "g", seeds=1)
    board = SweepBoard(sweep)
    monkeypatch.setattr("torch.utils.tensorboard.SummaryWriter.add_scalar", full)
    read = [{"frame": frame, "charts/episode_return": 1.0} for frame in (100, 200)]
    board.add(sweep.trials[0], iter(read))
    board.close()
    assert capsys.readouterr().err.count("No space left on device") == 1
