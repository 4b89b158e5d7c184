"""The four scenes of the demo, in the order in which they play."""

from satchel.demo.scenes import controls, data, kill, repair

SCENES = (repair.play, kill.play, data.play, controls.play)

__all__ = ["SCENES"]
