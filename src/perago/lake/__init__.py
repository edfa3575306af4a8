from perago.lake.sdk import enter_sdk

enter_sdk()  # before any module of this room imports a part of it
