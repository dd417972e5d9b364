"""MoCapAct: motion clips, dm_control's tracking task, and recordings in MoCapAct's file layout."""
